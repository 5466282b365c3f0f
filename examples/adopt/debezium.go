package main

import (
	"context"
	"database/sql"

	"github.com/google/uuid"
)

const debeziumTable = `
CREATE TABLE outbox (
	id            uuid PRIMARY KEY,
	aggregatetype varchar(255) NOT NULL,
	aggregateid   varchar(255) NOT NULL,
	type          varchar(255) NOT NULL,
	payload       jsonb,
	timestamp     timestamptz NOT NULL DEFAULT clock_timestamp()
)`

// debezium is the table of Debezium's outbox event router. Debezium reads the rows from the log of the database, so many services delete a row in the
// transaction that has inserted it. Such a service stops deleting before it goes over; this one does not delete.
type debezium struct{ db *sql.DB }

func openDebezium(ctx context.Context, s *site) (oldCode, error) {
	_, err := s.db.ExecContext(ctx, debeziumTable)
	return debezium{s.db.DB}, err
}

func (o debezium) change(ctx context.Context, order string) error {
	return inTx(ctx, o.db, func(tx *sql.Tx) error {
		version, err := raise(ctx, tx, order)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ($1, 'order', $2, 'order.changed', $3)`,
			uuid.NewString(), order, string(body(order, version)))
		return err
	})
}
