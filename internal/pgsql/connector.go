package pgsql

import (
	"context"
	"database/sql/driver"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// Connector opens connections of pgx whose transactions can share round trips; see [Pipeline]. In all else they are
// those of pgx/stdlib. It prepares statements, so it is not for databases behind a transaction-mode pooler.
type Connector struct {
	driver.Connector
}

// NewConnector returns the connector of a database.
func NewConnector(cfg pgx.ConnConfig) *Connector {
	return &Connector{stdlib.GetConnector(cfg)}
}

// Connect opens a connection.
func (c *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	opened, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{beneath: opened.(*stdlib.Conn), prepared: map[string]struct{}{}}, nil //nolint:forcetypeassert // GetConnector's
}

// beneath has another name than Conn, or the field would hide the method Conn, by which [Native] finds pgx.
type beneath = stdlib.Conn

// conn is a connection of a [Connector]. It is a [Pipeline].
type conn struct {
	*beneath

	tx *tx
	// prepared are the texts of the statements of pipelines.
	prepared map[string]struct{}
}

type laterKey struct{}

// BeginLater returns a context for BeginTx whose BEGIN leaves together with the first statement. That saves a round trip,
// if the connection is one of a [Connector] and the options are the defaults; otherwise it has no effect. Whoever uses
// it must reach the connection through [database/sql] and [Pipeline] only.
func BeginLater(ctx context.Context) context.Context {
	return context.WithValue(ctx, laterKey{}, true)
}

// BeginTx begins a transaction, at once or with its first statement.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if c.Conn().IsClosed() {
		return nil, driver.ErrBadConn
	}
	c.tx = &tx{ctx: ctx}
	if later, _ := ctx.Value(laterKey{}).(bool); later && opts == (driver.TxOptions{}) {
		return c.tx, nil
	}
	var err error
	if c.tx.begun, err = c.beneath.BeginTx(ctx, opts); err != nil {
		return nil, err
	}
	return c.tx, nil
}

// begin sends the BEGIN that was put off.
func (c *conn) begin(ctx context.Context) error {
	if c.tx == nil || c.tx.ended || c.tx.begun != nil {
		return nil
	}
	begun, err := c.Conn().BeginTx(ctx, pgx.TxOptions{})
	if err != nil {
		return err
	}
	c.tx.begun = pgxTx{c.tx.ctx, begun}
	return nil
}

// ExecContext runs a statement.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	return c.beneath.ExecContext(ctx, query, args)
}

// QueryContext runs a statement that returns rows.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	return c.beneath.QueryContext(ctx, query, args)
}

// PrepareContext prepares a statement. Where that fails, the transaction has failed too.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	return c.beneath.PrepareContext(ctx, query)
}

// tx is a transaction that may not have begun yet, or have ended already with its last statement.
type tx struct {
	ctx   context.Context //nolint:containedctx // that of BeginTx, as in pgx/stdlib
	begun driver.Tx       // nil: BEGIN has not been sent
	ended bool
}

// Commit sends COMMIT, if there is anything to commit.
func (t *tx) Commit() error { return t.end(driver.Tx.Commit) }

// Rollback sends ROLLBACK, if there is anything to roll back.
func (t *tx) Rollback() error { return t.end(driver.Tx.Rollback) }

func (t *tx) end(how func(driver.Tx) error) error {
	if t.ended || t.begun == nil {
		t.ended = true
		return nil
	}
	t.ended = true
	return how(t.begun)
}

// pgxTx is a transaction of pgx as a driver's.
type pgxTx struct {
	ctx context.Context //nolint:containedctx // as in pgx/stdlib
	tx  pgx.Tx
}

func (t pgxTx) Commit() error   { return t.tx.Commit(t.ctx) }
func (t pgxTx) Rollback() error { return t.tx.Rollback(t.ctx) }

// What database/sql looks for in a connection.
var _ interface {
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnPrepareContext
	driver.SessionResetter
	driver.NamedValueChecker
	driver.Pinger
} = (*conn)(nil)
