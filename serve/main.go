package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"go.opentelemetry.io/otel"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/messaging/brokers"
)

// Main runs the service until SIGTERM or Ctrl-C, and ends the process: with code 0 after a signal, and with code 1 and the error on stderr if the
// service could not start or go on. It sets the default logger of package slog to that of the service.
//
// kinds are the adapters that the program links, in addition to [Service].Brokers. So the package of a service links no broker, and its main is one line:
//
//	func main() { serve.Main(orders.Service(), pulsar.Kind()) }
func Main(s Service, kinds ...brokers.Kind) {
	s.Brokers = append(slices.Clip(s.Brokers), kinds...)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		<-signals
		signal.Stop(signals) // the next signal has its usual effect: it ends the process at once
		stop()
	}()
	exit(run(ctx, s, func(p *process) {
		// These belong to all of the process, so only Main sets them.
		slog.SetDefault(p.log)
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
			p.quiet.Warn("oncebox: traces or metrics could not be exported", "error", err)
		}))
	}))
}

// MainWith is [Main] for a service with settings of its own. It fills a Settings from the variables that begin with varPrefix (config.Env), and passes it to
// service. If required variables of Settings are missing, or variables cannot be read, also those of oncebox, the process ends with code 1 and one error that
// names all of them. A missing address, and values that can be read and are not allowed, are found when the process starts.
//
//	func main() { serve.MainWith("TICKETS_", tickets.Service, pulsar.Kind()) }
func MainWith[Settings any](varPrefix string, service func(Settings) Service, kinds ...brokers.Kind) {
	var own Settings
	if err := config.Env(varPrefix, &own); err != nil {
		_, others := config.FromEnv()
		exit(errors.Join(err, others, config.Env(prefix, &Config{})))
	}
	Main(service(own), kinds...)
}

// exit ends the process.
func exit(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
	os.Exit(0)
}
