package cli

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
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// Session is what the commands share: where they read and write, and the database, which the first that needs it opens.
type Session struct {
	*Terminal

	// DatabaseURL and Schema are those of the flags, in place of the variables.
	DatabaseURL, Schema string
	// JSON asks for one JSON document in place of tables.
	JSON bool
	// Running is the command that runs.
	Running *cobra.Command

	// Level is from which on the log is shown.
	Level slog.Level
	// Meters takes the metrics.
	Meters metric.MeterProvider
	// Waits says that the command waits for a database that is away, as a service does.
	Waits bool

	// DB and Cfg are the database and the configuration of the service, once it is open.
	DB  *bun.DB
	Cfg config.Config

	answers *bufio.Reader // of the terminal
}

// Open opens the database of the service.
func (s *Session) Open(ctx context.Context) error {
	cfg, err := config.FromEnv()
	if err != nil {
		return err
	}
	if s.DatabaseURL != "" {
		cfg.DatabaseURL = s.DatabaseURL
	}
	if s.Schema != "" {
		cfg.Schema = s.Schema
	}
	cfg.Telemetry.Logger = s.Logger()
	cfg.Telemetry.MeterProvider = s.Meters
	if !s.Waits { // somebody waits for the answer
		cfg.DatabaseWait = arrival.Off
	}
	s.Cfg = cfg.Shared()
	s.DB, err = config.OpenDB(ctx, s.Cfg)
	return err
}

// Logger returns a logger to the standard error.
func (s *Session) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(s.Errs, &slog.HandlerOptions{Level: s.Level}))
}

// OpenTables opens the database, and makes sure that it has the tables.
func (s *Session) OpenTables(ctx context.Context) error {
	if err := s.Open(ctx); err != nil {
		return err
	}
	wait := arrival.Wait{Limit: s.Cfg.DatabaseWait, Log: s.Cfg.Telemetry.Logger}
	err := wait.Until(ctx, func() error { return migrations.Applied(ctx, s.DB, s.Migrations()) })
	if missing := (*migrations.MissingError)(nil); errors.As(err, &missing) {
		return fmt.Errorf("%w; here: oncebox migrate up", err)
	}
	return err
}

// OpenList is OpenTables for a command that lists at most limit things. errs are what is wrong with its other flags.
func (s *Session) OpenList(cmd *cobra.Command, limit int, errs ...error) error {
	if limit < 1 {
		errs = append(errs, errors.New("--limit is below 1"))
	}
	if err := errors.Join(errs...); err != nil {
		return Usage(cmd, err)
	}
	return s.OpenTables(cmd.Context())
}

// Migrations returns where the tables of the service are.
func (s *Session) Migrations() *migrations.Config {
	return &migrations.Config{Schema: s.Cfg.Schema, Logger: s.Cfg.Telemetry.Logger}
}

// Outbox returns the outbox of the service.
func (s *Session) Outbox() *outbox.Store { return outbox.NewStore(s.DB, &s.Cfg.Outbox) }

// Inbox returns the inbox of the service.
func (s *Session) Inbox() *inbox.Inbox { return inbox.New(uow.New(s.DB, &s.Cfg.UoW), &s.Cfg.Inbox) }

// Keys returns the idempotency keys of the service.
func (s *Session) Keys() *idempotency.Store { return idempotency.NewStore(&s.Cfg.Idempotency) }

// View returns the view over all tables of the service.
func (s *Session) View() *ops.View { return ops.New(s.DB, s.Outbox(), s.Inbox(), s.Keys()) }

// ViewOfBroker is the view that asks the broker what waits there, if the variables of the service name it. Otherwise it shows what processes of the
// service have written down.
func (s *Session) ViewOfBroker() (*ops.View, error) {
	cfg, err := s.PulsarConfig()
	if cfg == nil || err != nil {
		return s.View(), err
	}
	reader, err := pulsar.NewReader(cfg)
	if err != nil {
		return nil, err
	}
	box := s.Inbox()
	return s.View().WithConsumers(func(ctx context.Context) ([]state.Consumer, error) { return box.State().ConsumersAt(ctx, reader) }), nil
}

// Close closes the database, if it is open.
func (s *Session) Close() error {
	if s.DB == nil {
		return nil
	}
	return s.DB.Close()
}

// PulsarConfig is nil where there is no broker.
func (s *Session) PulsarConfig() (*pulsar.Config, error) {
	if s.Cfg.PulsarURL == "" {
		return nil, nil
	}
	cfg := &pulsar.Config{Telemetry: telemetry.Config{Logger: s.Cfg.Telemetry.Logger}}
	if err := config.Env("ONCEBOX_PULSAR_", cfg); err != nil {
		return nil, err
	}
	if cfg.URL == "" { // it came from PULSAR_URL
		cfg.URL = s.Cfg.PulsarURL
	}
	return cfg, nil
}
