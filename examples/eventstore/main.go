// Command eventstore keeps an event store beside the outbox, in the same commit. It needs nothing but Go: PostgreSQL is
// the one on this machine, or is fetched once, and the broker lives in this process.
//
//	go run ./examples/eventstore
//
// Read account.go for a domain model that is nothing but its events, package streams for the store, bank.go for how the
// two meet in a unit of work, balances.go for a read model that can be rebuilt, and story.go for what it all does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/eventstore/streams"
	"github.com/oncebox/oncebox/localpg"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/uow"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := start(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "eventstore:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context) (err error) {
	postgres, err := localpg.Start(ctx, localpg.Output(os.Stdout))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, postgres.Close()) }()
	return run(ctx, postgres.URL, os.Stdout)
}

// run makes the tables in an empty database and runs the story.
func run(ctx context.Context, databaseURL string, out io.Writer) error {
	cfg, err := config.FromEnv()
	if err != nil {
		return err
	}
	cfg.DatabaseURL = databaseURL
	cfg.UoW.Source = "bank"
	cfg.Telemetry.Logger = slog.New(slog.DiscardHandler) // the story prints what happens
	db, err := config.OpenDB(ctx, cfg)
	if err != nil {
		return err
	}
	defer db.Close()

	disk := &disk{}
	s, err := newService(db, memory.New(nil), cfg, disk)
	if err != nil {
		return err
	}
	if err := s.tables(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.app.Run(ctx) }()
	err = (&story{service: s, disk: disk, cfg: cfg, out: out}).tell(ctx)
	cancel()
	return errors.Join(err, <-ended)
}

// service is what main wires together.
type service struct {
	db       *bun.DB
	app      *oncebox.App
	store    *streams.Store
	bank     *bank
	balances *balances
}

// newService gives the units of work a second sink, the event store, and others that are behind it.
func newService(db *bun.DB, broker oncebox.Broker, cfg config.Config, others ...uow.Sink) (*service, error) {
	registry := event.NewRegistry()
	register(registry)
	cfg.UoW.Registry = registry
	store := streams.New(registry)
	app, err := oncebox.New(db, broker, cfg, append([]uow.Sink{store}, others...)...)
	if err != nil {
		return nil, err
	}
	s := &service{db: db, app: app, store: store, bank: &bank{app.UoW, store}, balances: newBalances(app.UoW, registry)}
	app.Consume("account", "balances", s.balances.handler)
	return s, nil
}

// tables makes oncebox's tables and those of this example.
func (s *service) tables(ctx context.Context) error {
	if err := s.app.Migrate(ctx); err != nil {
		return err
	}
	_, err := s.db.ExecContext(ctx, streams.Table+`;
		CREATE TABLE IF NOT EXISTS balances (account text PRIMARY KEY, cents bigint NOT NULL, version bigint NOT NULL)`)
	return err
}
