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
	"github.com/oncebox/oncebox/internal/arrival"
	"github.com/oncebox/oncebox/messaging/brokers"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// Session is what all commands share: the terminal, the flags, and the database, which the first command
// that needs it opens.
type Session struct {
	*Terminal
	Program

	// DatabaseURL and Schema are the values of the flags, which replace those of the variables.
	DatabaseURL, Schema string
	// JSON selects one JSON document as the output, in place of tables.
	JSON bool
	// Brokers are the brokers that the program is built with, Broker is the name that the flag has given, and Kind the broker that ChooseBroker has
	// chosen: nil for none.
	Brokers brokers.Choice
	Broker  string
	Kind    *brokers.Kind
	// Running is the command that was called.
	Running *cobra.Command

	// Level is the lowest level of log lines that are shown.
	Level slog.Level
	// Meters receives the metrics.
	Meters metric.MeterProvider
	// Waits makes the command wait for a database that is away, as a service does. Other commands fail at
	// once, because a person waits for them.
	Waits bool

	// DB and Cfg are the database and the configuration of the service. They are set once the database is open.
	DB  *bun.DB
	Cfg config.Config

	answers *bufio.Reader      // reads the terminal; nil before the first question
	asked   brokers.Connection // the broker that ViewOfBroker asks; nil if none was asked
}

// Open reads the configuration from the variables and opens the database of the service.
func (s *Session) Open(ctx context.Context) (err error) {
	if err := s.configure(); err != nil {
		return err
	}
	s.DB, err = config.OpenDB(ctx, s.Cfg)
	return err
}

// configure reads the configuration from the variables. Flags win over variables, as in other programs.
func (s *Session) configure() error {
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
	if !s.Waits { // a person waits for the answer
		cfg.DatabaseWait = arrival.Off
	}
	s.Cfg = cfg.Shared()
	return nil
}

// Logger returns a logger that writes to stderr.
func (s *Session) Logger() *slog.Logger {
	rename := func(_ []string, a slog.Attr) slog.Attr {
		if err, is := a.Value.Any().(error); is && s.Running != nil {
			a.Value = slog.StringValue(Renamed(s.Running, err.Error()))
		}
		return a
	}
	return slog.New(slog.NewTextHandler(s.Errs, &slog.HandlerOptions{Level: s.Level, ReplaceAttr: rename}))
}

// OpenTables opens the database and checks that all migrations were applied.
func (s *Session) OpenTables(ctx context.Context) error {
	if err := s.Open(ctx); err != nil {
		return err
	}
	// With Waits, a migration that another process is just applying is waited for as well.
	wait := arrival.Wait{Limit: s.Cfg.DatabaseWait, Log: s.Cfg.Telemetry.Logger}
	err := wait.Until(ctx, func() error { return migrations.Applied(ctx, s.DB, s.Migrations()) })
	if missing := (*migrations.MissingError)(nil); errors.As(err, &missing) {
		return fmt.Errorf("%w; with this command: %s", err, s.Typed("migrate", "up"))
	}
	return err
}

// OpenList is OpenTables for a command that lists at most limit things. errs are the errors of its other flags, so that
// all mistakes are reported at once.
func (s *Session) OpenList(cmd *cobra.Command, limit int, errs ...error) error {
	if limit < 1 {
		errs = append(errs, errors.New("--limit is below 1"))
	}
	if err := errors.Join(errs...); err != nil {
		return Usage(cmd, err)
	}
	return s.OpenTables(cmd.Context())
}

// Migrations returns the schema of the tables, for package migrations.
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

// Close closes the database and the broker, as far as they are open.
func (s *Session) Close() error {
	var errs []error
	if s.asked != nil {
		errs = append(errs, s.asked.Close())
	}
	if s.DB != nil {
		errs = append(errs, s.DB.Close())
	}
	return errors.Join(errs...)
}
