// Package streams is an event store in one table: the events of each aggregate, by version, for ever.
//
// [Store] is a second sink beside the outbox, so what it keeps and what is published commit together or not at all:
//
//	units := uow.New(db, cfg, outboxStore, streams.New(registry))
//
// [Store.Load] makes an aggregate from its events, and [Store.Replay] hands all of them to a read model. Both go through
// the registry, so events of earlier versions of the program are understood.
package streams

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/uow"
)

// Table makes the table. Two writers of the same version conflict in its primary key.
const Table = `CREATE TABLE IF NOT EXISTS stream_events (
	tenant_id      text        NOT NULL,
	aggregate_type text        NOT NULL,
	aggregate_id   text        NOT NULL,
	version        bigint      NOT NULL,
	id             uuid        NOT NULL,
	event_type     text        NOT NULL,
	schema_version integer     NOT NULL,
	schema_id      text        NOT NULL,
	source         text        NOT NULL,
	topic          text        NOT NULL,
	occurred_at    timestamptz NOT NULL,
	content_type   text        NOT NULL,
	metadata       jsonb       NOT NULL,
	payload        bytea       NOT NULL,
	CONSTRAINT stream_version PRIMARY KEY (tenant_id, aggregate_type, aggregate_id, version)
)`

// Store keeps the events of versioned aggregates. It is a [uow.Sink].
type Store struct{ registry *event.Registry }

// New returns a store that decodes with r.
func New(r *event.Registry) *Store { return &Store{registry: r} }

// Flush stores the events in the transaction of their unit. If another unit has stored one of the versions, the error
// is [uow.ErrConflict]: Do then runs its function again, which loads the aggregate anew. Events without a version
// belong to no stream; only the outbox has them.
func (s *Store) Flush(ctx context.Context, tx bun.IDB, evs []event.Envelope) error {
	rows := make([]row, 0, len(evs))
	for i := range evs {
		if evs[i].AggregateVersion > 0 {
			rows = append(rows, rowOf(&evs[i]))
		}
	}
	if len(rows) == 0 {
		return nil
	}
	_, err := tx.NewInsert().Model(&rows).Exec(ctx)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.ConstraintName == "stream_version" {
		return fmt.Errorf("streams: %w: %s", uow.ErrConflict, pg.Detail)
	}
	if err != nil {
		return fmt.Errorf("streams: store %d events: %w", len(rows), err)
	}
	return nil
}
