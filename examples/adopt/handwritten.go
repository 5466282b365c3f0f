package main

import (
	"context"
	"database/sql"

	"github.com/google/uuid"
)

const handwrittenTable = `
CREATE TABLE outbox (
	id             uuid PRIMARY KEY,
	aggregate_type text NOT NULL,
	aggregate_id   text NOT NULL,
	event_type     text NOT NULL,
	payload        jsonb NOT NULL,
	status         text NOT NULL DEFAULT 'pending', -- pending, sent, failed
	created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
	processed_at   timestamptz
);
CREATE INDEX outbox_pending ON outbox (created_at) WHERE status = 'pending'`

// handwritten is an outbox that a service wrote itself: a table with a status, and a loop that published its rows.
type handwritten struct{ db *sql.DB }

func openHandwritten(ctx context.Context, s *site) (oldCode, error) {
	_, err := s.db.ExecContext(ctx, handwrittenTable)
	return handwritten{s.db.DB}, err
}

func (o handwritten) change(ctx context.Context, order string) error {
	return inTx(ctx, o.db, func(tx *sql.Tx) error {
		version, err := raise(ctx, tx, order)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES ($1, 'order', $2, 'order.changed', $3)`,
			uuid.NewString(), order, string(body(order, version)))
		return err
	})
}
