package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/internal/arrival"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// session is what the commands share: where they read and write, and the database, which the first that needs it opens.
type session struct {
	*terminal
	databaseURL, schema string
	json                bool
	answers             *bufio.Reader // of the terminal
	running             *cobra.Command

	level  slog.Level // from which on the log is shown
	meters metric.MeterProvider
	waits  bool // for a database that is away, as a service does

	db  *bun.DB
	cfg config.Config
}

// open opens the database of the service.
func (s *session) open(ctx context.Context) error {
	cfg, err := config.FromEnv()
	if err != nil {
		return err
	}
	if s.databaseURL != "" {
		cfg.DatabaseURL = s.databaseURL
	}
	if s.schema != "" {
		cfg.Schema = s.schema
	}
	cfg.Telemetry.Logger = s.logger()
	cfg.Telemetry.MeterProvider = s.meters
	if !s.waits { // somebody waits for the answer
		cfg.DatabaseWait = arrival.Off
	}
	s.cfg = cfg.Shared()
	s.db, err = config.OpenDB(ctx, s.cfg)
	return err
}

func (s *session) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(s.errs, &slog.HandlerOptions{Level: s.level}))
}

// openTables opens the database, and makes sure that it has the tables.
func (s *session) openTables(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	wait := arrival.Wait{Limit: s.cfg.DatabaseWait, Log: s.cfg.Telemetry.Logger}
	err := wait.Until(ctx, func() error { return migrations.Applied(ctx, s.db, s.migrations()) })
	if missing := (*migrations.MissingError)(nil); errors.As(err, &missing) {
		return fmt.Errorf("%w; here: oncebox migrate up", err)
	}
	return err
}

func (s *session) migrations() *migrations.Config {
	return &migrations.Config{Schema: s.cfg.Schema, Logger: s.cfg.Telemetry.Logger}
}

func (s *session) outbox() *outbox.Store { return outbox.NewStore(s.db, &s.cfg.Outbox) }

func (s *session) inbox() *inbox.Inbox { return inbox.New(uow.New(s.db, &s.cfg.UoW), &s.cfg.Inbox) }

func (s *session) keys() *idempotency.Store { return idempotency.NewStore(&s.cfg.Idempotency) }

func (s *session) view() *ops.View { return ops.New(s.db, s.outbox(), s.inbox(), s.keys()) }

// viewOfBroker is the view that asks the broker what waits there, if the variables of the service name it. Otherwise it shows what processes of the
// service have written down.
func (s *session) viewOfBroker() (*ops.View, error) {
	cfg, err := s.pulsarConfig()
	if cfg == nil || err != nil {
		return s.view(), err
	}
	reader, err := pulsar.NewReader(cfg)
	if err != nil {
		return nil, err
	}
	box := s.inbox()
	return s.view().WithConsumers(func(ctx context.Context) ([]state.Consumer, error) { return box.State().ConsumersAt(ctx, reader) }), nil
}

func (s *session) close() error {
	if s.db == nil {
		return nil
	}
	return s.db.Close()
}
