// Command orders is the reference service: a shop that takes orders, announces what happens to them, and builds a
// read model of its customers from the announcements. It runs as one process or as several:
//
//	orders                   everything in one process
//	orders -role api         takes requests
//	orders -role projector   publishes the outbox
//	orders -role consumer    builds the read model
//
// Any number of processes may have each role. Every process makes sure of tables, topic and subscription at its start.
//
// # Requests
//
//	POST /orders               {"customer_id":"c1","items":[{"sku":"a","qty":2,"price_cents":500}]}
//	POST /orders/{id}/items    {"sku":"b","qty":1,"price_cents":100}
//	POST /orders/{id}/cancel
//	GET  /orders/{id}
//	GET  /customers/{id}/summary
//	GET  /problems/            what is asked of keys, and what problems mean; /problems/openapi.json
//	GET  /healthz  /readyz  /metrics     in every role
//	     /console/                       the page for operators, in every role, if CONSOLE_OPERATORS or CONSOLE_READERS is set
//
// Each takes X-Tenant-ID; a POST needs an Idempotency-Key. Bad input is 400, what the domain refuses 422, an unknown order
// 404, a key in flight 409.
//
// # Environment
//
// ONCEBOX_DATABASE_URL (or DATABASE_URL) is required. ONCEBOX_PULSAR_URL (or PULSAR_URL) is required by every role but
// all, which has a broker in its memory without it. HTTP_ADDR is the address for requests, health and metrics; default:
// 127.0.0.1:8080. CONSOLE_OPERATORS=ann:secret,bob:secret may change what waits and is dead, CONSOLE_READERS may look; CONSOLE_SECRET,
// of 32 bytes or more, is the same in all processes behind one address, and CONSOLE_TRACE_URL is the address of a trace with {trace_id} in
// it. TRACES_FILE is a file for spans; docs/tracing.md shows what one request leaves there. The other variables are in docs/config.md.
//
// # Reading
//
// order.go is the domain, api.go the requests, summary.go the read model, service.go the wiring.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/oncebox/oncebox/config"
)

// defaultAddr is where requests are taken unless HTTP_ADDR says otherwise.
const defaultAddr = "127.0.0.1:8080"

func main() {
	slog.SetDefault(slog.New(storyHandler{slog.NewTextHandler(os.Stderr, nil)}))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	name := flags.String("role", string(RoleAll), "what this process does: all, api, projector or consumer")
	if err := flags.Parse(args); err != nil {
		return err
	}
	role, err := parseRole(*name)
	if err != nil {
		return err
	}
	cfg, err := config.FromEnv()
	if err != nil {
		return err
	}
	addr := os.Getenv("HTTP_ADDR")
	if addr == "" {
		addr = defaultAddr
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("HTTP_ADDR: choose another address, :0 for a free port: %w", err)
	}
	defer listener.Close()
	s, err := newService(ctx, role, cfg)
	if ctx.Err() != nil {
		return nil // stopped before it began
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	slog.InfoContext(ctx, "orders: listening", "role", role, "addr", listener.Addr().String())
	return s.Run(ctx, listener)
}
