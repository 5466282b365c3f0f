// Command twoservices runs two services that share events and nothing else: orders takes orders over HTTP, and invoices writes an invoice for each
// of them. Each has a database of its own. docs/two-services.md explains it.
//
//	go run ./examples/twoservices                   # both in this process, with a broker in memory; it ends by itself
//	go run ./examples/twoservices -only orders      # this service, on ONCEBOX_DATABASE_URL and ONCEBOX_PULSAR_URL, until SIGTERM
//	go run ./examples/twoservices -only invoices -addr 127.0.0.1:8081
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/examples/twoservices/invoices"
	"github.com/oncebox/oncebox/examples/twoservices/orders"
	"github.com/oncebox/oncebox/messaging/pulsar"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "twoservices:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("twoservices", flag.ContinueOnError)
	only := flags.String("only", "", "the service to run: orders or invoices; without it both are played through")
	addr := flags.String("addr", "127.0.0.1:8080", "where the service takes requests")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch *only {
	case "":
		return play(ctx, os.Stdout)
	case orders.Source, invoices.Source:
	default:
		return fmt.Errorf("-only %s: there are orders and invoices", *only)
	}
	cfg, err := config.FromEnv()
	if err != nil {
		return err
	}
	var brokerConfig pulsar.Config
	if err := config.Env("ONCEBOX_PULSAR_", &brokerConfig); err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *addr)
	if err != nil {
		return fmt.Errorf("choose another -addr: %w", err)
	}
	return one(ctx, *only, cfg, &brokerConfig, listener)
}

// one runs one service, as its own main would.
func one(ctx context.Context, name string, cfg config.Config, brokerConfig *pulsar.Config, listener net.Listener) (err error) {
	defer listener.Close()
	db, err := config.OpenDB(ctx, cfg)
	if err != nil {
		return err
	}
	defer db.Close()
	broker, err := pulsar.Connect(ctx, brokerConfig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	if name == invoices.Source {
		app, err := invoices.New(ctx, db, broker, cfg)
		if err != nil {
			return err
		}
		return serve(ctx, app, http.NotFoundHandler(), listener)
	}
	app, routes, err := orders.New(ctx, db, broker, cfg)
	if err != nil {
		return err
	}
	return serve(ctx, app, routes, listener)
}

// serve answers requests, publishes and consumes until ctx is done.
func serve(ctx context.Context, app *oncebox.App, routes http.Handler, listener net.Listener) error {
	server := &http.Server{Handler: routes, ReadHeaderTimeout: 10 * time.Second}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return app.Run(ctx) })
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		return server.Shutdown(end)
	})
	return group.Wait()
}
