// Package pgsql runs SQL constants: it inserts the schema into them, and prepares hot statements once per connection. Package pgerr classifies the
// errors.
//
// bun writes arguments into the text of a statement, so that the server parses and plans each call anew, which costs a third of the rate of a small
// transaction. The statements here go to the database/sql handles beneath bun instead, with $n arguments.
package pgsql

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
)

// handle is what *sql.DB, *sql.Tx and *sql.Conn have in common.
type handle interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// unwrap returns the database/sql handle beneath a bun handle.
func unwrap(db bun.IDB) (handle, error) {
	switch v := db.(type) {
	case *bun.DB:
		return v.DB, nil
	case bun.Tx:
		return v.Tx, nil
	case *bun.Tx:
		return v.Tx, nil
	case bun.Conn:
		return v.Conn, nil
	default:
		return nil, fmt.Errorf("a %T is neither *bun.DB nor bun.Tx nor bun.Conn: pass the handle that bun gave you", db)
	}
}

// Runner runs statement constants in one schema. Outside of a transaction a statement is READ COMMITTED, whatever the default of
// the database, the role and the session is.
type Runner struct {
	places    *places
	mode      pgx.QueryExecMode
	limit     time.Duration // 0: none
	confirmed bool          // see Confirmed
	isolation *isolation
}

// New returns a runner. If name is "", the first statement of each pool finds the schema, see [FindSchema]. pooler says that a transaction-mode
// pooler stands before the database, where a prepared statement may be unknown to the next connection. words are pairs of a placeholder in
// statements, such as {columns}, and its text.
func New(name string, pooler bool, words ...string) *Runner {
	r := &Runner{mode: pgx.QueryExecModeCacheStatement, places: &places{words: words}, isolation: &isolation{}}
	if name != "" {
		r.places.configured = newPlace(name, words)
	}
	if pooler {
		r.mode = pgx.QueryExecModeExec
	}
	return r
}

// AdHoc returns a runner of the same schema and pool whose statements are planned anew each time, without a limit.
func (r *Runner) AdHoc() *Runner {
	other := *r
	other.mode, other.limit, other.confirmed = pgx.QueryExecModeExec, 0, false
	return &other
}

// Within returns a runner that limits the time of each statement of QueryRow and Exec. After that its connection is closed.
func (r *Runner) Within(limit time.Duration) *Runner {
	other := *r
	other.limit = limit
	return &other
}

// limited returns a context with a time limit (0: without one), and the function to call when its statements have ended, with their error.
func limited(ctx context.Context, limit time.Duration) (within context.Context, done func(err error) error) {
	if limit == 0 {
		return ctx, func(err error) error { return err }
	}
	within, cancel := context.WithTimeout(ctx, limit)
	return within, func(err error) error {
		late := within.Err() != nil && ctx.Err() == nil
		cancel()
		if err != nil && late {
			return fmt.Errorf("%s: %w", unanswered(limit), err)
		}
		return err
	}
}

// unanswered says for how long the server was silent.
func unanswered(limit time.Duration) string {
	return fmt.Sprintf("the database has not answered for %s", limit)
}

// QueryRow runs a statement that returns one row, and scans it into dest.
func (r *Runner) QueryRow(ctx context.Context, db bun.IDB, constant string, args []any, dest ...any) error {
	return r.run(ctx, db, constant, func(ctx context.Context, conn handle, text string) error {
		return conn.QueryRowContext(ctx, text, r.withMode(args)...).Scan(dest...)
	})
}

// Exec runs a statement and returns how many rows it touched.
func (r *Runner) Exec(ctx context.Context, db bun.IDB, constant string, args ...any) (n int64, err error) {
	err = r.run(ctx, db, constant, func(ctx context.Context, conn handle, text string) error {
		res, err := conn.ExecContext(ctx, text, r.withMode(args)...)
		if err == nil {
			n, err = res.RowsAffected()
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// run calls fn with the handle for a statement, and commits the statement if it is a transaction of its own.
func (r *Runner) run(ctx context.Context, db bun.IDB, constant string, fn func(ctx context.Context, conn handle, text string) error) error {
	ctx, done := limited(ctx, r.limit)
	text, err := r.TextFor(ctx, db, constant)
	if err != nil {
		return done(err)
	}
	if pool, ok := db.(*bun.DB); ok && r.confirmed {
		return done(r.alone(ctx, pool, func(conn handle) error { return fn(ctx, conn, text) }))
	}
	conn, tx, err := r.begin(ctx, db)
	if err != nil {
		return done(err)
	}
	return done(end(tx, fn(ctx, conn, text)))
}

// withMode adds the argument by which pgx chooses how to send this one statement, whatever the default of the connection is.
func (r *Runner) withMode(args []any) []any {
	return append([]any{r.mode}, args...)
}
