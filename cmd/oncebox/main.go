package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	t := &terminal{
		in: os.Stdin, out: os.Stdout, errs: os.Stderr, asks: term.IsTerminal(int(os.Stdin.Fd())), shows: term.IsTerminal(int(os.Stderr.Fd())),
	}
	if term.IsTerminal(int(os.Stdout.Fd())) {
		t.size = size
	}
	code := run(ctx, t, os.Args[1:])
	stop()
	os.Exit(code)
}

// size is that of the terminal, or that of a small one where it does not tell.
func size() (width, height int) {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}
