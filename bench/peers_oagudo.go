package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oagudo/outbox"
)

// oagudoTable is what its documentation says for PostgreSQL.
const oagudoTable = `
CREATE TABLE oagudo (
	id uuid PRIMARY KEY, created_at timestamptz NOT NULL, scheduled_at timestamptz NOT NULL, metadata bytea, payload bytea NOT NULL,
	times_attempted integer NOT NULL);
CREATE INDEX ON oagudo (created_at);
CREATE INDEX ON oagudo (scheduled_at)`

// oagudoPeer is oagudo/outbox. It has one reader: two of them would publish everything twice.
type oagudoPeer struct {
	db     *sql.DB
	of     *outbox.DBContext
	writer *outbox.UnmanagedWriter
}

func openOagudo(ctx context.Context, s *schema, conns int) (peer, error) {
	if err := s.exec(ctx, oagudoTable); err != nil {
		return nil, err
	}
	db, err := s.bun(pgx.QueryExecModeCacheStatement, conns)
	if err != nil {
		return nil, err
	}
	of := outbox.NewDBContext(db.DB, outbox.SQLDialectPostgres, outbox.WithTableName("oagudo"))
	return &oagudoPeer{db: db.DB, of: of, writer: outbox.NewWriter(of).Unmanaged()}, nil
}

func (p *oagudoPeer) transact(ctx context.Context, id string, balance, version int64, k int) error {
	return p.inTx(ctx, func(tx *sql.Tx) error {
		const update = `UPDATE account SET balance = $1, version = version + $2 WHERE id = $3 AND version = $4 RETURNING version`
		var now int64
		if err := tx.QueryRowContext(ctx, update, balance+1, k, id, version).Scan(&now); err != nil {
			return err
		}
		body, err := newMoneyMoved(id).encode()
		if err != nil {
			return err
		}
		return p.add(ctx, tx, delivery{Account: id, Version: version, Payload: body})
	})
}

func (p *oagudoPeer) inTx(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (p *oagudoPeer) add(ctx context.Context, tx *sql.Tx, d delivery) error {
	return p.writer.Store(ctx, tx, outbox.NewMessage(d.Payload, outbox.WithMetadata([]byte(d.encode()))))
}

func (p *oagudoPeer) record(ctx context.Context, events []delivery) error {
	return p.inTx(ctx, func(tx *sql.Tx) error {
		for _, d := range events {
			if err := p.add(ctx, tx, d); err != nil {
				return err
			}
		}
		return nil
	})
}

// oagudoPublisher hands messages to the sink.
type oagudoPublisher struct{ to *sink }

// Publish publishes one event.
func (p oagudoPublisher) Publish(ctx context.Context, m *outbox.Message) error {
	d, err := decodeDelivery(m.Metadata)
	if err != nil {
		return err
	}
	d.Payload = m.Payload
	return p.to.deliverAlone(ctx, d)
}

func (p *oagudoPeer) relay(ctx context.Context, to *sink) error {
	reader := outbox.NewReader(p.of, oagudoPublisher{to}, outbox.WithInterval(time.Millisecond),
		outbox.WithReadBatchSize(1000), outbox.WithDeleteBatchSize(1000))
	reader.Start()
	<-ctx.Done()
	if err := reader.Stop(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("stop the reader: %w", err)
	}
	return nil
}

func (p *oagudoPeer) left(ctx context.Context) (n int, err error) {
	err = p.db.QueryRowContext(ctx, "SELECT count(*) FROM oagudo").Scan(&n)
	return n, err
}

func (p *oagudoPeer) close() { _ = p.db.Close() }
