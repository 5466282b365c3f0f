package uow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// Pgx returns the unit's transaction as one of pgx: for the code that sqlc generates for pgx/v5, for COPY, and for functions that take a
// [pgx.Tx]. [Unit.Pgx], [Unit.SQL] and [Unit.DB] work in the same transaction. Read rows to their end, or close them,
// before the next statement of the unit.
//
// Commit and Rollback are refused, because the unit does that. Begin is refused too: use [Manager.Do] within the unit, a savepoint that drops events
// as well. Conn returns nil, and all other methods fail, when the unit has ended, when the function has ended the transaction itself, or when the
// driver is not pgx.
//
// On connections of config.OpenDB statements are prepared, except those of SendBatch: cast their parameters where PostgreSQL cannot infer the type
// of a []byte ($1::text::jsonb).
func (u *Unit) Pgx() pgx.Tx { return pgxTx{u.level} }

var (
	errNotPgx    = errors.New("the driver of the pool is not pgx")
	errUnitEnds  = errors.New("uow: Pgx: the unit commits, or rolls back, when its function returns: leave both to it")
	errSavepoint = errors.New("uow: Pgx: Begin: use Manager.Do with the context of the unit: its savepoint takes back events as well")
)

// pgxTx is the result of [Unit.Pgx].
type pgxTx struct{ level *level }

// do calls fn with the connection, and with the arguments that choose how pgx sends a statement. Meanwhile no other goroutine uses the connection,
// and it cannot go back to the pool.
func (t pgxTx) do(ctx context.Context, call string, fn func(c *pgx.Conn, mode []any) error) error {
	err := errEnded
	if t.level.open() {
		var ok bool
		if ok, err = pgsql.WithinTx(ctx, t.level.root.tx.conn, fn); err == nil && !ok {
			err = errNotPgx
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrConnDone):
		err = errEnded
	case !errors.Is(err, errEnded) && !errors.Is(err, errNotPgx) && !errors.Is(err, ErrTransactionEnded):
		return err // as pgx has it
	}
	return fmt.Errorf("uow: Pgx: %s: %w", call, err)
}

func (t pgxTx) Exec(ctx context.Context, query string, args ...any) (tag pgconn.CommandTag, err error) {
	err = t.do(ctx, "Exec", func(c *pgx.Conn, mode []any) (err error) {
		if len(args) > 0 { // else there may be several statements in it
			args = append(mode, args...)
		}
		tag, err = c.Exec(ctx, query, args...)
		return err
	})
	return tag, err
}

func (t pgxTx) Query(ctx context.Context, query string, args ...any) (rows pgx.Rows, err error) {
	err = t.do(ctx, "Query", func(c *pgx.Conn, mode []any) (err error) {
		rows, err = c.Query(ctx, query, append(mode, args...)...) //nolint:sqlclosecheck // they are the caller's
		return err
	})
	if rows == nil {
		rows = failedRows{err} // callers usually pass the rows to pgx.CollectRows before they check the error
	}
	return rows, err
}

func (t pgxTx) QueryRow(ctx context.Context, query string, args ...any) (row pgx.Row) {
	err := t.do(ctx, "QueryRow", func(c *pgx.Conn, mode []any) error {
		row = c.QueryRow(ctx, query, append(mode, args...)...)
		return nil
	})
	if err != nil {
		return failedRows{err}
	}
	return row
}

// SendBatch returns before the results are read. That is safe, because the connection stays with the unit until its end.
func (t pgxTx) SendBatch(ctx context.Context, b *pgx.Batch) (results pgx.BatchResults) {
	err := t.do(ctx, "SendBatch", func(c *pgx.Conn, _ []any) error {
		results = c.SendBatch(ctx, b)
		return nil
	})
	if err != nil {
		return failedBatch{err}
	}
	return results
}

func (t pgxTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (n int64, err error) {
	err = t.do(ctx, "CopyFrom", func(c *pgx.Conn, _ []any) (err error) {
		n, err = c.CopyFrom(ctx, table, columns, src)
		return err
	})
	return n, err
}

func (t pgxTx) Prepare(ctx context.Context, name, query string) (d *pgconn.StatementDescription, err error) {
	err = t.do(ctx, "Prepare", func(c *pgx.Conn, _ []any) (err error) {
		d, err = c.Prepare(ctx, name, query)
		return err
	})
	return d, err
}

// Conn returns the connection of the unit for code that needs pgx itself. Such code must not end the transaction.
func (t pgxTx) Conn() (conn *pgx.Conn) {
	_ = t.do(context.Background(), "Conn", func(c *pgx.Conn, _ []any) error {
		conn = c
		return nil
	})
	return conn
}

func (pgxTx) Begin(context.Context) (pgx.Tx, error) { return nil, errSavepoint }
func (pgxTx) Commit(context.Context) error          { return errUnitEnds }
func (pgxTx) Rollback(context.Context) error        { return errUnitEnds }

// LargeObjects panics: pgx makes its value for transactions of its own only.
func (pgxTx) LargeObjects() pgx.LargeObjects {
	panic("uow: Pgx: LargeObjects: not to be had of a unit: call the functions of the server (lo_create and its like) by Query")
}

// failedRows are those of a query that was not sent.
type failedRows struct{ err error }

func (failedRows) Close()                                       {}
func (r failedRows) Err() error                                 { return r.err }
func (failedRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (failedRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (failedRows) Next() bool                                   { return false }
func (r failedRows) Scan(...any) error                          { return r.err }
func (r failedRows) Values() ([]any, error)                     { return nil, r.err }
func (failedRows) RawValues() [][]byte                          { return nil }
func (failedRows) Conn() *pgx.Conn                              { return nil }
func (failedRows) TypeMap() *pgtype.Map                         { return nil }

// failedBatch are the results of a batch that was not sent.
type failedBatch struct{ err error }

func (b failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, b.err }
func (b failedBatch) Query() (pgx.Rows, error)         { return failedRows(b), b.err }
func (b failedBatch) QueryRow() pgx.Row                { return failedRows(b) }
func (b failedBatch) Close() error                     { return b.err }
func (failedBatch) Tx() pgx.Tx                         { return nil }
