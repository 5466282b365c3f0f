package serve

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"go.opentelemetry.io/otel"
)

// Main runs the service until SIGTERM or Ctrl-C, and ends the process: with code 0 after a signal, and with code 1 and the error on stderr if the
// service could not start or go on. It sets the default logger of package slog to that of the service.
func Main(s Service) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		<-signals
		signal.Stop(signals) // the next signal has its usual effect: it ends the process at once
		stop()
	}()
	err := run(ctx, s, func(p *process) {
		// These belong to all of the process, so only Main sets them.
		slog.SetDefault(p.log)
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
			p.quiet.Warn("oncebox: traces or metrics could not be exported", "error", err)
		}))
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
	os.Exit(0)
}
