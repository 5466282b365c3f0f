// Package oncebox wires the parts together: unit of work, outbox, relay, inbox and idempotency keys on one PostgreSQL
// database, and a broker between services.
//
//	cfg, err := config.FromEnv()
//	db, err := config.OpenDB(ctx, cfg)
//	app, err := oncebox.New(db, broker, cfg)
//	event.Register[OrderPlaced](app.Registry)
//
//	router := messaging.NewRouter(app.Registry)
//	messaging.Handle(router, func(ctx context.Context, e OrderPlaced) error { ... })
//	app.Consume("order", "billing", router)
//
//	err = app.Migrate(ctx)
//	err = app.Run(ctx) // until ctx is done
//
// It is the one-call wiring and nothing else: every part can be used without it.
//
// # Guarantees
//
// What the parts guarantee, see their packages; docs/guarantees.md has all of it on one page. [App.Run] makes sure that
// the durable subscriptions exist before the relay publishes its first message.
//
// # Errors
//
// [New] reports everything that is wrong with the configuration at once. [App.Run] returns when its context is done, or when a part can
// never work. It waits for a database or broker that cannot be reached, at its start and later, see config.Config.DatabaseWait.
package oncebox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/arrival"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
	"github.com/oncebox/oncebox/uow"
)

// Broker is the interface of messaging/pulsar, messaging/memory and adapters of your own.
type Broker interface {
	messaging.Publisher
	// Subscribe is the method of [messaging.Subscriber].
	Subscribe(ctx context.Context, s messaging.Subscription) (messaging.Receiver, error)
	// Close closes the connection. [App] does not call it: close the broker after [App.Run] has returned.
	Close() error
}

// App is a service's outbox, inbox and relay, wired together. Its fields are ready to use.
type App struct {
	// UoW runs functions in a transaction that stores the events with the data.
	UoW *uow.Manager
	// Outbox holds the events until they are published. Use it to add events without UoW, and for dead letters.
	Outbox *outbox.Store
	// Inbox runs the consumers: each message takes effect once.
	Inbox *inbox.Inbox
	// Idempotency stores answers under the keys of requests, for httpmw.Idempotency.
	Idempotency *idempotency.Store
	// Projector is the relay, which publishes the events of Outbox. (Read models are in package inbox/readmodel.)
	Projector *projector.Projector
	// Registry holds the types of events. Register every type that consumers handle.
	Registry *event.Registry

	db       *bun.DB
	broker   Broker
	cfg      config.Config
	log      *slog.Logger
	writable writable

	unusedAfter time.Duration
	declaration declaration
}

// New wires an application. Without a broker (nil) the relay stores each event for each consumer of its topic, and the
// consumers handle it from the database, with the same guarantees. New does not access the database. Each of sinks, for
// example an event store, gets the events in the same transaction, after the outbox.
func New(db *bun.DB, broker Broker, cfg config.Config, sinks ...uow.Sink) (*App, error) {
	if db == nil {
		return nil, errors.New("oncebox: New: db is nil: open it with config.OpenDB")
	}
	cfg.Telemetry.Logger = slog.New(newDeniedLog(config.Quiet(cfg.Telemetry.Logger, cfg.LogInterval).Handler()))
	cfg = cfg.Shared()
	if cfg.UoW.Source == "" {
		return nil, errors.New("oncebox: New: the source is empty: set Config.UoW.Source (ONCEBOX_SOURCE) " +
			"to the name of this service; it identifies its events")
	}
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("oncebox: New: %w", err)
	}
	if broker, ok := broker.(messaging.Naming); ok {
		obey(&cfg.UoW.ValidateTopic, broker)
		obey(&cfg.Outbox.ValidateTopic, broker)
	}
	if broker, ok := broker.(messaging.Observed); ok {
		broker.Observe(cfg.Telemetry)
	}
	a := &App{db: db, broker: broker, cfg: cfg, log: cfg.Telemetry.Logger, Registry: cfg.UoW.Registry, unusedAfter: unusedAfter}
	a.Outbox = outbox.NewStore(db, &cfg.Outbox)
	a.UoW = uow.New(db, &cfg.UoW, append([]uow.Sink{a.Outbox}, sinks...)...)
	a.Inbox = inbox.New(a.UoW, &cfg.Inbox)
	a.Idempotency = idempotency.NewStore(&cfg.Idempotency)

	var publisher messaging.Publisher = broker
	if broker == nil {
		publisher = a.Inbox.Publisher()
	}
	var err error
	if a.Projector, err = projector.New(publisher, &cfg.Projector, a.Outbox); err != nil {
		return nil, fmt.Errorf("oncebox: New: %w", err)
	}
	return a, nil
}

// Migrate creates or updates the tables. It is safe in any number of processes at once. It waits for a database that cannot be reached, see
// config.Config.DatabaseWait. A [*ForeignError] means that the tables belong to another service, and that nothing was changed. A service that makes
// tables of its own calls Migrate first, so that it makes none in a wrong database.
func (a *App) Migrate(ctx context.Context) error {
	return a.waiting().Until(ctx, func() error {
		if err := refuseForeign(ctx, a); err != nil {
			return err
		}
		return migrations.Up(ctx, a.db, &migrations.Config{Schema: a.cfg.Schema, Logger: a.cfg.Telemetry.Logger})
	})
}

// RefuseForeign returns a [*ForeignError] if the tables belong to another service, and nil if they do not exist yet. It waits for a database that does not
// answer, for at most config.Config.DatabaseWait. [App.Migrate] begins with it, and so does [App.Run] of a process with
// consumers. Package serve calls it before Service.Setup, which may write to the database.
func (a *App) RefuseForeign(ctx context.Context) error {
	return a.waiting().Until(ctx, func() error { return refuseForeign(ctx, a) })
}

func (a *App) waiting() arrival.Wait { return arrival.Wait{Limit: a.cfg.DatabaseWait, Log: a.log} }

// obey makes the broker's rule for names the rule for recorded events, unless the service has set one.
func obey(rule *func(topic string) error, broker messaging.Naming) {
	if *rule == nil {
		*rule = broker.ValidateTopic
	}
}
