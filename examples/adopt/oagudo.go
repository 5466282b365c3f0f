package main

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/oagudo/outbox"
)

// oagudoTable is what the documentation of the library says for PostgreSQL.
const oagudoTable = `
CREATE TABLE outbox (
	id uuid PRIMARY KEY, created_at timestamptz NOT NULL, scheduled_at timestamptz NOT NULL, metadata bytea, payload bytea NOT NULL,
	times_attempted integer NOT NULL
);
CREATE INDEX idx_outbox_created_at ON outbox (created_at)`

// oagudo uses github.com/oagudo/outbox. Its table has no topic and no key, so the service put both into the metadata, where its publisher found them.
type oagudo struct {
	db     *sql.DB
	writer *outbox.UnmanagedWriter
}

func openOagudo(ctx context.Context, s *site) (oldCode, error) {
	_, err := s.db.ExecContext(ctx, oagudoTable)
	return oagudo{s.db.DB, outbox.NewWriter(outbox.NewDBContext(s.db.DB, outbox.SQLDialectPostgres)).Unmanaged()}, err
}

func (o oagudo) change(ctx context.Context, order string) error {
	return inTx(ctx, o.db, func(tx *sql.Tx) error {
		version, err := raise(ctx, tx, order)
		if err != nil {
			return err
		}
		metadata, err := json.Marshal(map[string]string{"topic": "order", "type": "order.changed", "order_id": order})
		if err != nil {
			return err
		}
		return o.writer.Store(ctx, tx, outbox.NewMessage(body(order, version), outbox.WithMetadata(metadata)))
	})
}
