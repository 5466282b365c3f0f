package main

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// publishEvent is a job whose worker published the event.
type publishEvent struct {
	Topic   string          `json:"topic"`
	Type    string          `json:"type"`
	OrderID string          `json:"order_id"`
	Event   json.RawMessage `json:"event"`
}

// Kind names the job.
func (publishEvent) Kind() string { return "publish_event" }

// riverCode uses river as an outbox: a job is inserted in the transaction of the change.
type riverCode struct {
	pool *pgxpool.Pool
	jobs *river.Client[pgx.Tx]
}

func openRiver(ctx context.Context, s *site) (oldCode, error) {
	silent := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(riverpgxv5.New(s.pool), &rivermigrate.Config{Logger: silent})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	jobs, err := river.NewClient(riverpgxv5.New(s.pool), &river.Config{Logger: silent})
	return riverCode{s.pool, jobs}, err
}

func (o riverCode) change(ctx context.Context, order string) error {
	return pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error {
		version, err := raisePgx(ctx, tx, order)
		if err != nil {
			return err
		}
		_, err = o.jobs.InsertTx(ctx, tx, publishEvent{"order", "order.changed", order, body(order, version)}, nil)
		return err
	})
}
