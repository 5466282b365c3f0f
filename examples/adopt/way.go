package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/outbox/adopt"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

const (
	numberOfOrders = 8
	changes        = 15 // of each order, by each of two writers, in each phase

	tables = `CREATE TABLE orders (id text PRIMARY KEY, version int NOT NULL DEFAULT 0);
CREATE TABLE seen (n bigserial PRIMARY KEY, order_id text NOT NULL, version int NOT NULL)`
)

// way is the way from an old table to oncebox, step by step, as the guides have it.
type way struct {
	shape  shape
	site   *site
	box    string // schema of the tables of oncebox: the old table may be called outbox
	schema string // schema of the old table
	say    func(format string, args ...any)

	old, fresh interface {
		change(ctx context.Context, order string) error
	}
	app   *oncebox.App
	mover *adopt.Mover
}

// report is what has arrived at the consumer.
type report struct {
	Events, Lost, Twice, OutOfOrder int
}

func (w *way) walk(ctx context.Context) (r report, err error) {
	if err := w.begin(ctx); err != nil {
		return r, err
	}
	// The old publisher is off. Old code goes on.
	if err := w.write(ctx, w.old, w.old); err != nil {
		return r, err
	}
	p, err := w.mover.Preview(ctx, 1)
	if err != nil {
		return r, err
	}
	w.say("--dry-run: %v, %d rows cannot be mapped", p.Topics, p.Unmapped)

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running errgroup.Group
	running.Go(func() error { return w.app.Run(ctx) })
	moving, stopMoving := context.WithCancel(ctx)
	defer stopMoving()
	running.Go(func() error { return w.mover.Run(moving) })
	if err := w.write(ctx, w.old, w.old); err != nil {
		return r, err
	}
	w.say("adopt runs, and old code writes")

	// A second mover: the first one is a process of its own.
	second, err := w.newMover(ctx)
	if err != nil {
		return r, err
	}
	if err := second.Forward(ctx); err != nil {
		return r, err
	}
	w.say("--forward: each row is forwarded by the transaction that writes it")
	if err := w.write(ctx, w.old, w.fresh); err != nil {
		return r, err
	}
	w.say("old and new code write the same orders")
	if err := w.write(ctx, w.fresh, w.fresh); err != nil {
		return r, err
	}
	stopMoving()
	left, err := second.Once(ctx)
	if err != nil {
		return r, err
	}
	if left.Left > 0 {
		return r, fmt.Errorf("%d rows are left: %v", left.Left, left.Problems)
	}
	if err := second.StopForwarding(ctx); err != nil {
		return r, err
	}
	w.say("--once: nothing is left. --stop-forwarding")

	r, err = w.arrived(ctx, numberOfOrders*changes*2*4)
	stop()
	return r, errors.Join(err, running.Wait())
}

// begin makes the tables and starts nothing yet.
func (w *way) begin(ctx context.Context) (err error) {
	if _, err := w.site.db.ExecContext(ctx, tables); err != nil {
		return err
	}
	if _, err := w.site.db.ExecContext(ctx, "INSERT INTO orders SELECT i::text FROM generate_series(1, ?) i", numberOfOrders); err != nil {
		return err
	}
	if w.old, err = w.shape.open(ctx, w.site); err != nil {
		return err
	}
	cfg := config.Config{
		Schema: w.box, UoW: uow.Config{Source: "shop"}, Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)},
	}
	if w.app, err = oncebox.New(w.site.db, memory.New(nil), cfg); err != nil {
		return err
	}
	event.Register[OrderChanged](w.app.Registry)
	w.app.Consume(w.shape.topic, "reader", messaging.HandlerFunc(see))
	if err := w.app.Migrate(ctx); err != nil {
		return err
	}
	w.fresh = newCode{w.app.UoW, w.shape.topic}
	w.mover, err = w.newMover(ctx)
	return err
}

func (w *way) newMover(ctx context.Context) (*adopt.Mover, error) {
	mapping, err := w.shape.mapping(w.schema)
	if err != nil {
		return nil, err
	}
	return adopt.New(ctx, w.app.Outbox, mapping, nil)
}

// see is the consumer. It writes down what it gets.
func see(ctx context.Context, m *messaging.Message) error {
	var e OrderChanged
	if err := json.Unmarshal(m.Payload, &e); err != nil {
		return messaging.Permanent(err)
	}
	u := uow.MustFromContext(ctx)
	_, err := u.DB().NewRaw("INSERT INTO seen (order_id, version) VALUES (?, ?)", e.OrderID, e.Version).Exec(ctx)
	return err
}

// write has two writers change all orders, at the same time.
func (w *way) write(ctx context.Context, by ...interface {
	change(ctx context.Context, order string) error
},
) error {
	var writers errgroup.Group
	for _, code := range by {
		writers.Go(func() error {
			for range changes {
				for order := range numberOfOrders {
					if err := code.change(ctx, strconv.Itoa(order+1)); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return writers.Wait()
}

// arrived waits for the events and compares them with the changes: the versions of each order, one after the other.
func (w *way) arrived(ctx context.Context, events int) (r report, err error) {
	const compare = `
SELECT count(*), count(*) - count(DISTINCT (order_id, version)), count(*) FILTER (WHERE version <> turn)
FROM (SELECT order_id, version, row_number() OVER (PARTITION BY order_id ORDER BY n) AS turn FROM seen) s`
	for {
		var seen int
		if err := w.site.db.NewRaw(compare).Scan(ctx, &seen, &r.Twice, &r.OutOfOrder); err != nil {
			return r, err
		}
		r.Events, r.Lost = seen, events-(seen-r.Twice)
		if r.Lost <= 0 {
			return r, nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
}
