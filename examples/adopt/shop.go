package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/uow"
)

// site is the database of the service.
type site struct {
	db   *bun.DB
	pool *pgxpool.Pool
}

// oldCode changes an order and announces the change, as the service did before.
type oldCode interface {
	change(ctx context.Context, order string) error
}

// OrderChanged is the event, in old and in new code.
type OrderChanged struct {
	OrderID string `json:"order_id"`
	Version int    `json:"version"`
}

// EventType is the type that consumers know.
func (OrderChanged) EventType() string { return "order.changed" }

// body is the payload of old code.
func body(order string, version int) []byte {
	text, _ := json.Marshal(OrderChanged{order, version}) //nolint:errchkjson // a text and a number
	return text
}

const raiseVersion = "UPDATE orders SET version = version + 1 WHERE id = $1 RETURNING version"

// raise is the change of an order.
func raise(ctx context.Context, tx *sql.Tx, order string) (version int, err error) {
	err = tx.QueryRowContext(ctx, raiseVersion, order).Scan(&version)
	return version, err
}

func raisePgx(ctx context.Context, tx pgx.Tx, order string) (version int, err error) {
	err = tx.QueryRow(ctx, raiseVersion, order).Scan(&version)
	return version, err
}

func inTx(ctx context.Context, db *sql.DB, fn func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// newCode changes an order and announces the change with oncebox. It is the same for each table. The topic and the names of the aggregate are those of the
// mapping: events of one order have one ordering key, in old and in new code.
type newCode struct {
	units *uow.Manager
	topic string
}

func (n newCode) change(ctx context.Context, order string) error {
	return n.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		version, err := raise(ctx, u.SQL(), order)
		if err != nil {
			return err
		}
		return u.Add(n.topic, OrderChanged{order, version}, event.WithAggregate("order", order, int64(version)))
	})
}
