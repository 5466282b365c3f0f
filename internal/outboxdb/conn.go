package outboxdb

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// Conn takes the statements of a flush: a pool or a transaction, of database/sql or of pgx.
type Conn interface {
	QueryRow(ctx context.Context, constant string, args []any, dest ...any) error
	// Query calls each for every row.
	Query(ctx context.Context, constant string, args []any, each func(pgsql.Scan) error) error
}

// bunConn sends statements to a pool or to a transaction of database/sql.
type bunConn struct {
	run *pgsql.Runner
	db  bun.IDB
}

func (h bunConn) QueryRow(ctx context.Context, constant string, args []any, dest ...any) error {
	return h.run.QueryRow(ctx, h.db, constant, args, dest...)
}

func (h bunConn) Query(ctx context.Context, constant string, args []any, each func(pgsql.Scan) error) error {
	return pgsql.Each(h.run.Query(ctx, h.db, constant, args...), each)
}

// pgxConn sends statements to a transaction of pgx.
type pgxConn struct {
	run *pgsql.Runner
	tx  pgx.Tx
}

func (h pgxConn) QueryRow(ctx context.Context, constant string, args []any, dest ...any) error {
	return h.run.QueryRowPgx(ctx, h.tx, constant, args, dest...)
}

func (h pgxConn) Query(ctx context.Context, constant string, args []any, each func(pgsql.Scan) error) error {
	rows, err := h.run.QueryPgx(ctx, h.tx, constant, args...)
	if err != nil {
		return err
	}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (none struct{}, err error) { return none, each(row.Scan) })
	return err
}

// ErrNoTransaction means that events were to be stored without a transaction.
var ErrNoTransaction = errors.New("outbox: the transaction is nil: begin one and pass it")

// On returns a Conn to a pool, or to a transaction.
func (h *Handle) On(db bun.IDB) Conn { return bunConn{h.Run, db} }

// Within returns a Conn to a transaction, and an error for anything else. Through a pool the events would be
// committed by themselves, whether the data that they announce is committed or not.
func (h *Handle) Within(tx bun.IDB) (Conn, error) {
	switch v := tx.(type) {
	case nil:
		return nil, ErrNoTransaction
	case bun.Tx:
		if v.Tx == nil {
			return nil, ErrNoTransaction
		}
	case *bun.Tx:
		if v == nil || v.Tx == nil {
			return nil, ErrNoTransaction
		}
	default:
		return nil, fmt.Errorf("outbox: events are stored in a transaction, and a %T may be none: begin one and pass the bun.Tx", tx)
	}
	return h.On(tx), nil
}

// WithinPgx is Within for a transaction of pgx.
func (h *Handle) WithinPgx(tx pgx.Tx) (Conn, error) {
	if tx == nil {
		return nil, ErrNoTransaction
	}
	return pgxConn{h.Run, tx}, nil
}
