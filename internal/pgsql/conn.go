package pgsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// beneath has another name than Conn, or the field would hide the method Conn, by which [Native] finds pgx.
type beneath = stdlib.Conn

// conn is a connection of a [Connector].
type conn struct {
	*beneath

	patience time.Duration
	ending   *ending
	guard    *guard // nil: nothing is refused
	tx       *tx    // the latest transaction of database/sql, at own; nil: none
	own      tx
	trip     roundTrip       // that is under way
	tracer   pgx.BatchTracer // nil: none
	// prepared are the texts of the statements of pipelines. nil: behind a pooler, where nothing is prepared.
	prepared map[string]prepared
	// build encodes the parameters of pipelines. It is kept, because it keeps its memory.
	build pgx.ExtendedQueryBuilder
}

// unhurried is the context of a transaction that does not end with its caller's context.
type unhurried struct {
	context.Context //nolint:containedctx // the caller's: it has the values, and cancels a BEGIN that is sent at once

	limit time.Duration
}

type unhurriedKey struct{}

func (*unhurried) Deadline() (none time.Time, ok bool) { return none, false }
func (*unhurried) Done() <-chan struct{}               { return nil }
func (*unhurried) Err() error                          { return nil }

// Value returns the values of the caller's context.
func (u *unhurried) Value(key any) any {
	if key == (unhurriedKey{}) {
		return u
	}
	return u.Context.Value(key)
}

// BeginLater returns a context for BeginTx on a connection of a [Connector]. The transaction goes on when ctx ends: database/sql would roll it back at
// any time, also during COMMIT. ctx cancels only its BEGIN, and COMMIT and ROLLBACK may take as long as limit.
//
// BEGIN is sent together with the first statement, which saves a round trip, if the first statement is a [Runner]'s Exec or sent by [Send], the
// connection is not [BehindPooler], and the options are the defaults or READ COMMITTED. Code that uses it must reach the connection through
// [database/sql] and [Send] only.
func BeginLater(ctx context.Context, limit time.Duration) context.Context {
	return &unhurried{ctx, limit}
}

// laterOf returns the context of [BeginLater], nil if ctx is not one.
func laterOf(ctx context.Context) *unhurried {
	later, _ := ctx.Value(unhurriedKey{}).(*unhurried)
	return later
}

// EndedTx implements endedTx, for the function of the same name.
func (c *conn) EndedTx() string { return c.ending.how }

// pipelines reports whether statements can share a round trip.
func (c *conn) pipelines() bool { return c.prepared != nil }

// BeginTx begins a transaction, at once or with its first statement.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if c.Conn().IsClosed() {
		return nil, driver.ErrBadConn
	}
	if err := c.refuseTx(ctx); err != nil {
		return nil, err
	}
	later := laterOf(ctx)
	c.own = tx{ctx: ctx, ending: c.ending} // database/sql has ended the one before
	c.tx = &c.own
	c.ending.follow(later != nil)
	if later != nil && c.pipelines() && !opts.ReadOnly {
		switch sql.IsolationLevel(opts.Isolation) {
		case sql.LevelDefault:
			return c.tx, nil
		case sql.LevelReadCommitted:
			c.tx.options.IsoLevel = pgx.ReadCommitted
			return c.tx, nil
		default: // begins at once
		}
	}
	if later != nil {
		ctx = later.Context
	}
	if _, err := c.beneath.BeginTx(ctx, opts); err != nil {
		c.tx = nil
		c.ending.leave("")
		return nil, err
	}
	c.tx.begun = c.Conn()
	return c.tx, nil
}

// begin sends the BEGIN that was put off.
func (c *conn) begin(ctx context.Context) error {
	if c.tx == nil || c.tx.ended || c.tx.begun != nil {
		return nil
	}
	if _, err := c.Conn().BeginTx(ctx, c.tx.options); err != nil {
		return err
	}
	c.tx.begun = c.Conn()
	return nil
}

// ready is called before each statement: it refuses the statement, or sends a BEGIN that was put off.
func (c *conn) ready(ctx context.Context, args []driver.NamedValue) error {
	if err := c.refuse(ctx, args); err != nil {
		return err
	}
	return c.begin(ctx)
}

// ExecContext runs a statement, together with the BEGIN that was put off if it may be prepared.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.tx != nil && !c.tx.ended && c.tx.begun == nil && len(args) > 0 && args[0].Value == pgx.QueryExecModeCacheStatement {
		return c.execFirst(ctx, query, args[1:])
	}
	if err := c.ready(ctx, args); err != nil {
		return nil, err
	}
	result, err := c.beneath.ExecContext(ctx, query, args)
	return result, c.unsent(ctx, err)
}

// unsent returns the error of ctx if a statement was not sent because ctx had ended. pgx/stdlib says [driver.ErrBadConn] then, as if the connection
// were lost: [database/sql] would drop a good connection, and callers would take the end of their time for trouble with the database. database/sql
// looks at ctx before it calls the driver, but a BEGIN that was put off is sent after that.
func (c *conn) unsent(ctx context.Context, err error) error {
	if errors.Is(err, driver.ErrBadConn) && ctx.Err() != nil && !c.Conn().IsClosed() {
		return ctx.Err()
	}
	return err
}

// execFirst sends BEGIN and the statement in one round trip.
func (c *conn) execFirst(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	values := make([]any, len(args))
	for i, arg := range args {
		values[i] = arg.Value
	}
	b := &Batch{}
	b.Queue(query, values...)
	tag, _, err := c.send(ctx, b, false)
	return driver.RowsAffected(tag.RowsAffected()), err
}

// QueryContext runs a statement that returns rows.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.ready(ctx, args); err != nil {
		return nil, err
	}
	rows, err := c.beneath.QueryContext(ctx, query, args)
	return rows, c.unsent(ctx, err)
}

// PrepareContext prepares a statement. Each execution is checked again, because database/sql keeps statements that were prepared on a pool. If
// preparing fails, the transaction has failed too.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.ready(ctx, nil); err != nil {
		return nil, err
	}
	prepared, err := c.beneath.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return stmt{prepared.(*stdlib.Stmt), c}, nil //nolint:forcetypeassert // that of stdlib.Conn
}

// Ping asks the server for an answer.
func (c *conn) Ping(ctx context.Context) error {
	return bounded(ctx, c.patience, c.beneath.Ping)
}

func bounded(ctx context.Context, limit time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return fn(ctx)
}

// stmt is a prepared statement of a [conn].
type stmt struct {
	*stdlib.Stmt

	conn *conn
}

// ExecContext runs the statement.
func (s stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.conn.ready(ctx, args); err != nil {
		return nil, err
	}
	result, err := s.Stmt.ExecContext(ctx, args)
	return result, s.conn.unsent(ctx, err)
}

// QueryContext runs the statement, which returns rows.
func (s stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.conn.ready(ctx, args); err != nil {
		return nil, err
	}
	rows, err := s.Stmt.QueryContext(ctx, args)
	return rows, s.conn.unsent(ctx, err)
}

// tx is a transaction that may not have begun yet, or have ended already with its last statement.
type tx struct {
	ctx     context.Context //nolint:containedctx // that of BeginTx, as in pgx/stdlib
	ending  *ending
	options pgx.TxOptions // of a BEGIN that was put off
	begun   *pgx.Conn     // nil: BEGIN has not been sent
	ended   bool
}

// Commit sends COMMIT, if there is anything to commit. A failure closes the connection, unless the server has said that the transaction is over.
func (t *tx) Commit() error {
	return t.end(endedByCommit, func(ctx context.Context) error {
		err := committed(t.begun.Exec(ctx, commitText))
		if err != nil && t.begun.PgConn().TxStatus() != 'I' {
			_ = t.begun.Close(ctx)
		}
		return err
	})
}

// Rollback sends ROLLBACK, if there is anything to roll back. A failure closes the connection.
func (t *tx) Rollback() error {
	return t.end(EndedByRollback, func(ctx context.Context) error {
		_, err := t.begun.Exec(ctx, "rollback")
		if err != nil {
			_ = t.begun.Close(ctx)
		}
		return err
	})
}

// end ends the transaction if it was begun at all. A unit that sent no statement costs no round trip.
func (t *tx) end(name string, send func(ctx context.Context) error) error {
	t.ending.leave(name)
	if t.ended || t.begun == nil {
		t.ended = true
		return nil
	}
	t.ended = true
	if later := laterOf(t.ctx); later != nil {
		return bounded(t.ctx, later.limit, send)
	}
	return send(t.ctx)
}

// The interfaces that database/sql looks for in a connection.
var _ interface {
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnPrepareContext
	driver.SessionResetter
	driver.NamedValueChecker
	driver.Pinger
} = (*conn)(nil)
