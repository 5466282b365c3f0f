package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// handle is what the statements of a flush are sent to.
type handle interface {
	queryRow(ctx context.Context, constant string, args []any, dest ...any) error
	// query calls each for every row.
	query(ctx context.Context, constant string, args []any, each func(pgsql.Scan) error) error
}

// bunHandle sends statements to a pool or to a transaction of database/sql.
type bunHandle struct {
	run *pgsql.Runner
	db  bun.IDB
}

func (h bunHandle) queryRow(ctx context.Context, constant string, args []any, dest ...any) error {
	return h.run.QueryRow(ctx, h.db, constant, args, dest...)
}

func (h bunHandle) query(ctx context.Context, constant string, args []any, each func(pgsql.Scan) error) error {
	return pgsql.Each(h.run.Query(ctx, h.db, constant, args...), each)
}

// pgxHandle sends statements to a transaction of pgx.
type pgxHandle struct {
	run *pgsql.Runner
	tx  pgx.Tx
}

func (h pgxHandle) queryRow(ctx context.Context, constant string, args []any, dest ...any) error {
	return h.run.QueryRowPgx(ctx, h.tx, constant, args, dest...)
}

func (h pgxHandle) query(ctx context.Context, constant string, args []any, each func(pgsql.Scan) error) error {
	rows, err := h.run.QueryPgx(ctx, h.tx, constant, args...)
	if err != nil {
		return err
	}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (none struct{}, err error) { return none, each(row.Scan) })
	return err
}

var errNoTransaction = errors.New("outbox: the transaction is nil: begin one and pass it")

// within returns the handle of a transaction. Through a pool the events would be committed by themselves, whatever becomes of the data
// that they announce.
func (s *Store) within(tx bun.IDB) (handle, error) {
	switch v := tx.(type) {
	case nil:
		return nil, errNoTransaction
	case bun.Tx:
		if v.Tx == nil {
			return nil, errNoTransaction
		}
	case *bun.Tx:
		if v == nil || v.Tx == nil {
			return nil, errNoTransaction
		}
	default:
		return nil, fmt.Errorf("outbox: events are stored in a transaction, and a %T may be none: begin one and pass the bun.Tx", tx)
	}
	return bunHandle{s.sql, tx}, nil
}
