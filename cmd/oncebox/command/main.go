package command

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/messaging/brokers"
)

// Main runs the command line of the process with the brokers that it is built with, and ends the process.
//
// It ends by os.Exit, which runs no deferred calls. Therefore run closes everything that has to be closed.
func Main(kinds ...brokers.Kind) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// Each of the three may be a pipe: questions need a terminal to read from, the progress bar one on stderr, and the
	// width of tables one on stdout.
	t := &cli.Terminal{
		In: os.Stdin, Out: os.Stdout, Errs: os.Stderr, Asks: term.IsTerminal(int(os.Stdin.Fd())), Shows: term.IsTerminal(int(os.Stderr.Fd())),
	}
	if term.IsTerminal(int(os.Stdout.Fd())) {
		t.Size = size
	}
	code := run(ctx, t, kinds, os.Args)
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
