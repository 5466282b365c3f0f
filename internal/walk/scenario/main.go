// Command scenario is the service of which package walk records how one event goes: an aggregate, an event, a consumer. It takes its database and
// its broker from the variables ONCEBOX_, and prints the recorded functions as JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/walk/trace"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// quiet is how long no function must be entered until the service counts as idle. It is longer than an event takes, and
// shorter than the service's timers.
const quiet = 300 * time.Millisecond

// OrderPlaced is the event that is followed.
type OrderPlaced struct {
	ID string `json:"id"`
}

// EventType is the name of the event.
func (OrderPlaced) EventType() string { return "order.placed" }

// Order is the aggregate that records the event.
type Order struct {
	event.Recorder `bun:"-"`

	ID      string `bun:",pk"`
	Version int64
}

// AggregateType is the name of the type.
func (o *Order) AggregateType() string { return "order" }

// AggregateID is the key of the row.
func (o *Order) AggregateID() string { return o.ID }

// AggregateVersion is the version of the row.
func (o *Order) AggregateVersion() int64 { return o.Version }

// Placed is the consumer's table.
type Placed struct {
	bun.BaseModel `bun:"placed"`

	ID string `bun:",pk"`
}

// write is the first stretch of the way, from Save to COMMIT. Package trace finds it by its name.
func write(ctx context.Context, units *uow.Manager, id string) error {
	return units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		o := &Order{ID: id}
		o.Record(OrderPlaced{ID: id})
		return u.Save(ctx, o)
	})
}

func main() {
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "scenario:", err)
		os.Exit(1) //nolint:gocritic // the process ends, and the timer with it
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	cfg, err := config.FromEnv()
	if err != nil {
		return err
	}
	cfg.UoW.Source = "walk"
	cfg.Telemetry.Logger = slog.New(slog.DiscardHandler)
	// With the default intervals the service would never be idle, and what it does at each would be part of the way.
	cfg.Projector.SleepIdle, cfg.Inbox.PollInterval, cfg.Consumer.BacklogInterval = time.Minute, time.Minute, -1
	cfg.Projector.Renew, cfg.Projector.Lease = time.Minute, time.Hour
	db, err := config.OpenDB(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	broker, err := connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	app, err := oncebox.New(db, broker, cfg)
	if err != nil {
		return err
	}
	s := &service{app: app, db: db, handled: make(chan struct{}, 1)}
	if err := s.declare(ctx); err != nil {
		return err
	}
	entered, err := s.record(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(entered)
}

func connect(ctx context.Context) (*pulsar.Broker, error) {
	cfg := pulsar.Config{Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)}}
	if err := config.Env("ONCEBOX_PULSAR_", &cfg); err != nil {
		return nil, err
	}
	return pulsar.Connect(ctx, &cfg)
}

// service places orders and consumes their events.
type service struct {
	app     *oncebox.App
	db      *bun.DB
	handled chan struct{}
}

func (s *service) declare(ctx context.Context) error {
	event.Register[OrderPlaced](s.app.Registry)
	router := messaging.NewRouter(s.app.Registry)
	messaging.Handle(router, func(ctx context.Context, e OrderPlaced) error {
		u := uow.MustFromContext(ctx)
		_, err := u.DB().NewInsert().Model(&Placed{ID: e.ID}).Exec(ctx)
		s.handled <- struct{}{}
		return err
	})
	s.app.Consume("order", "billing", router)
	if err := s.app.Migrate(ctx); err != nil {
		return err
	}
	_, err := s.db.ExecContext(ctx, "CREATE TABLE orders (id text PRIMARY KEY, version bigint); CREATE TABLE placed (id text PRIMARY KEY)")
	return err
}

// events is the number of events that are recorded. A function that a timer calls every few seconds is passed during some of them, not during all.
const events = 6

// record runs the service and returns the functions that each event has passed. It leaves the first event out, because
// it also passes functions that run once in a process.
func (s *service) record(ctx context.Context) (entered []map[string][]string, err error) {
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.app.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	for n := range events + 1 {
		id := strconv.Itoa(n)
		if err := trace.Quiet(ctx, quiet); err != nil {
			return nil, fmt.Errorf("the service never became idle: %w", err)
		}
		trace.Start()
		if err := write(ctx, s.app.UoW, id); err != nil {
			return nil, err
		}
		select {
		case <-s.handled:
		case <-ctx.Done():
			return nil, fmt.Errorf("the event %s was not handled: %w", id, context.Cause(ctx))
		}
		if err := trace.Quiet(ctx, quiet); err != nil {
			return nil, fmt.Errorf("the service never became idle: %w", err)
		}
		entered = append(entered, trace.Entered())
	}
	return entered[1:], nil
}
