package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/uptrace/bun"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/examples/twoservices/invoices"
	"github.com/oncebox/oncebox/examples/twoservices/orders"
	"github.com/oncebox/oncebox/localpg"
	"github.com/oncebox/oncebox/messaging/memory"
)

// play runs both services in this process until an order has its invoice, and says what happens.
func play(ctx context.Context, out io.Writer) (err error) {
	broker := memory.New(nil)
	defer func() { err = errors.Join(err, broker.Close()) }()
	invoicesDB, err := openOwn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, invoicesDB.close()) }()
	ordersDB, err := openOwn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ordersDB.close()) }()

	invoicesApp, err := invoices.New(ctx, invoicesDB.pool, broker, invoicesDB.cfg)
	if err != nil {
		return err
	}
	ordersApp, routes, err := orders.New(ctx, ordersDB.pool, broker, ordersDB.cfg)
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return invoicesApp.Run(ctx) })
	group.Go(func() error { return serve(ctx, ordersApp, routes, listener) })
	group.Go(func() error {
		defer end()
		return order(ctx, out, "http://"+listener.Addr().String()+"/orders/o-1")
	})
	return group.Wait()
}

// database is the database of one service.
type database struct {
	pool  *bun.DB
	cfg   config.Config
	close func() error
}

func openOwn(ctx context.Context) (*database, error) {
	postgres, err := localpg.Start(ctx)
	if err != nil {
		return nil, err
	}
	cfg, err := config.FromEnv()
	if err != nil {
		return nil, errors.Join(err, postgres.Close())
	}
	cfg.DatabaseURL = postgres.URL
	pool, err := config.OpenDB(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, postgres.Close())
	}
	return &database{pool, cfg, func() error { return errors.Join(pool.Close(), postgres.Close()) }}, nil
}

// order is a client. It sends a request twice, as after a lost answer, and then asks until the order has its invoice.
func order(ctx context.Context, out io.Writer, url string) error {
	for range 2 {
		answer, err := ask(ctx, http.MethodPost, url)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "POST /orders/o-1:", answer)
	}
	for range time.Tick(50 * time.Millisecond) {
		answer, err := ask(ctx, http.MethodGet, url)
		if err != nil {
			return err
		}
		if strings.Contains(answer, `"invoice":"i`) {
			fmt.Fprintln(out, "GET /orders/o-1:", answer)
			break
		}
	}
	return nil
}

// ask returns the status and the body of an answer.
func ask(ctx context.Context, method, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return "", err
	}
	if method == http.MethodPost {
		req.Header.Set("Idempotency-Key", "key-1")
	}
	return send(req)
}

func send(req *http.Request) (string, error) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return strings.TrimSpace(resp.Status + " " + string(body)), err
}
