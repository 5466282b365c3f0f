// Package shop is the reference service as a function, so that programs for different brokers are the same service. The documentation of
// [github.com/oncebox/oncebox/examples/orders] describes it.
//
// Read first: order.go:Order, then service.go.
package shop

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
	"github.com/oncebox/oncebox/messaging/brokers"
)

// defaultAddr is where requests are taken unless HTTP_ADDR says otherwise.
const defaultAddr = "127.0.0.1:8080"

// Main runs the service of this process, with the brokers that the program is built with, and ends the process.
func Main(kinds ...brokers.Kind) {
	slog.SetDefault(slog.New(storyHandler{slog.NewTextHandler(os.Stderr, nil)}))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, kinds, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(ctx context.Context, kinds []brokers.Kind, args []string) (err error) {
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	name := flags.String("role", string(RoleAll), "what this process does: all, api, projector or consumer")
	choice := brokers.Choice{Kinds: kinds, Flag: "-broker", Others: others}
	broker := flags.String("broker", "", "the broker: "+choice.Built()+" or none; default: the broker whose address is set")
	if err := flags.Parse(args); err != nil {
		return err
	}
	role, err := parseRole(*name)
	if err != nil {
		return err
	}
	kind, err := choice.Choose(*broker)
	if err != nil {
		return err
	}
	if kind == nil && role != RoleAll {
		return needsBroker(role, &choice)
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
	s, err := newService(ctx, role, kind, cfg)
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
