// Command twoservices runs two services that share events and nothing else: orders takes orders over HTTP, and invoices writes an invoice for each
// of them. Each has a database of its own. Here both run in one process, with a broker in memory, until an order has its invoice. The programs in cmd
// run one service each, on Pulsar. docs/two-services.md explains it.
//
//	go run ./examples/twoservices
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/examples/twoservices/invoices"
	"github.com/oncebox/oncebox/examples/twoservices/orders"
	"github.com/oncebox/oncebox/localpg"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/serve"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := play(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "twoservices:", err)
		os.Exit(1)
	}
}

// play runs both services until an order has its invoice, and writes the answers to out.
func play(ctx context.Context, out io.Writer) (err error) {
	broker := memory.New(nil)
	defer func() { err = errors.Join(err, broker.Close()) }()
	ctx, end := context.WithCancel(ctx)
	defer end()
	group, ctx := errgroup.WithContext(ctx)
	started := make(chan net.Addr, 1)
	ordersService, invoicesService := orders.Service(), invoices.Service()
	ordersService.Started = func(at net.Addr) { started <- at }
	for _, s := range []serve.Service{invoicesService, ordersService} {
		s.Broker = broker
		group.Go(func() error { return runApart(ctx, s) })
	}
	group.Go(func() error {
		defer end()
		select {
		case at := <-started:
			return order(ctx, out, "http://"+at.String()+"/orders/o-1")
		case <-ctx.Done():
			return nil // the service could not start, or the program is to end
		}
	})
	return group.Wait()
}

// runApart runs a service at a free address, on a database of its own, which is removed in the end.
func runApart(ctx context.Context, s serve.Service) error {
	postgres, err := localpg.Start(ctx)
	if err != nil {
		return err
	}
	s.Close = postgres.Close
	s.Configure = func(app *config.Config, process *serve.Config) error {
		app.DatabaseURL, process.Addr = postgres.URL, "127.0.0.1:0"
		return nil
	}
	return serve.Run(ctx, s)
}
