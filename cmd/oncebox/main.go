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
	code := run(ctx, &terminal{
		in: os.Stdin, out: os.Stdout, errs: os.Stderr, asks: term.IsTerminal(int(os.Stdin.Fd())), shows: term.IsTerminal(int(os.Stderr.Fd())),
	}, os.Args[1:])
	stop()
	os.Exit(code)
}
