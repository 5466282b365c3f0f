package pgsql

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
)

// Native calls fn with pgx's own connection beneath a pool or a connection of bun: to read large results without the cost of [database/sql]'s
// interfaces, and for statements that share a round trip. ok is false, and fn was not called, if the driver is not pgx, or db is a transaction,
// whose connection database/sql does not give away.
//
// A panic of fn closes the connection, as database/sql does.
func Native(ctx context.Context, db bun.IDB, fn func(*pgx.Conn) error) (ok bool, err error) {
	switch v := db.(type) {
	case *bun.DB:
		conn, err := v.Conn(ctx)
		if err != nil {
			return false, fmt.Errorf("get a connection to the database: %w", err)
		}
		defer func() { _ = conn.Close() }()
		return NativeConn(conn, fn)
	case bun.Conn:
		return NativeConn(v, fn)
	default:
		return false, nil
	}
}

// native is a connection of a driver with one of pgx beneath it.
type native interface{ Conn() *pgx.Conn }

// NativeConn is [Native] for a connection. Units of work call it several times each: a bun.Conn as a bun.IDB is one object more.
func NativeConn(conn bun.Conn, fn func(*pgx.Conn) error) (ok bool, err error) {
	err = conn.Raw(func(driver any) error {
		beneath, is := driver.(native)
		if !is {
			return nil
		}
		ok = true
		return fn(beneath.Conn())
	})
	return ok, err
}

// WithinTx is [NativeConn] for statements of callers in the transaction of database/sql that is open on c: a BEGIN that was put off is sent first.
// The error is [pgerr.ErrEnded] if no transaction is open, or another one. Pass mode as the first arguments of such a statement: pgx must know the types
// of its parameters, or it sends []byte as bytea. bun's own statements have no parameters, so the mode of the connection does not ask for types.
func WithinTx(ctx context.Context, c bun.Conn, fn func(c *pgx.Conn, mode []any) error) (ok bool, err error) {
	rawErr := c.Raw(func(driver any) error {
		var beneath *pgx.Conn
		var mode []any
		switch v := driver.(type) {
		case *conn:
			if err = v.begin(ctx); err != nil {
				ok = true
				return nil //nolint:nilerr // as below
			}
			if beneath, mode = v.Conn(), []any{pgx.QueryExecModeCacheStatement}; !v.pipelines() { // behind a pooler
				mode = []any{pgx.QueryExecModeDescribeExec}
			}
		case native:
			beneath = v.Conn()
		default:
			return nil
		}
		ok = true
		if how, _ := EndedTx(driver); how != "" {
			err = &pgerr.EndedError{How: how}
		} else {
			err = fn(beneath, slices.Clip(mode))
		}
		return nil // an error could make database/sql close the connection
	})
	if rawErr != nil {
		return true, rawErr
	}
	return ok, err
}

// binary makes pgx ask for the binary form of types that it would otherwise read as text.
var binary = pgx.QueryResultFormatsByOID{ //nolint:gochecknoglobals // a constant
	pgtype.BoolOID: pgx.BinaryFormatCode, pgtype.ByteaOID: pgx.BinaryFormatCode, pgtype.UUIDOID: pgx.BinaryFormatCode,
	pgtype.Int2OID: pgx.BinaryFormatCode, pgtype.Int4OID: pgx.BinaryFormatCode, pgtype.Int8OID: pgx.BinaryFormatCode,
	pgtype.TimestamptzOID: pgx.BinaryFormatCode,
}

// MayBeNative reports whether a statement may be sent without a transaction of its own, see [Runner].
func (r *Runner) MayBeNative(ctx context.Context, db *bun.DB) (bool, error) {
	stricter, err := r.isolation.isStricter(ctx, db)
	return !stricter, err
}

// QueryNative runs a text of [Runner.TextFor] that returns rows, prepared. Their raw values are in PostgreSQL's binary format.
func (r *Runner) QueryNative(ctx context.Context, conn *pgx.Conn, text string, args ...any) (pgx.Rows, error) {
	return conn.Query(ctx, text, append([]any{pgx.QueryExecModeCacheStatement, binary}, args...)...)
}

// QueryPgx runs a statement that returns rows in a transaction of pgx.
func (r *Runner) QueryPgx(ctx context.Context, tx pgx.Tx, constant string, args ...any) (pgx.Rows, error) {
	p, err := r.inPgx(ctx, tx)
	if err != nil {
		return nil, err
	}
	return tx.Query(ctx, p.Text(constant), r.withPgxMode(args)...)
}

// QueryRowPgx runs a statement that returns one row in a transaction of pgx, and scans it into dest.
func (r *Runner) QueryRowPgx(ctx context.Context, tx pgx.Tx, constant string, args []any, dest ...any) error {
	p, err := r.inPgx(ctx, tx)
	if err != nil {
		return err
	}
	return tx.QueryRow(ctx, p.Text(constant), r.withPgxMode(args)...).Scan(dest...)
}

// withPgxMode does not change how a connection of somebody else sends a statement: it may be configured for a pooler, or without a cache of
// statements. If our own configuration has a pooler, nothing is prepared.
func (r *Runner) withPgxMode(args []any) []any {
	if r.mode == pgx.QueryExecModeExec {
		return r.withMode(args)
	}
	return args
}
