package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	t := &cli.Terminal{
		In: os.Stdin, Out: os.Stdout, Errs: os.Stderr, Asks: term.IsTerminal(int(os.Stdin.Fd())), Shows: term.IsTerminal(int(os.Stderr.Fd())),
	}
	if term.IsTerminal(int(os.Stdout.Fd())) {
		t.Size = size
	}
	code := run(ctx, t, os.Args[1:])
	stop()
	os.Exit(code)
}

// size returns the size of the terminal, or a small one if the terminal does not report it.
func size() (width, height int) {
	width, height, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}
