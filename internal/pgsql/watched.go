package pgsql

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

const (
	// pingTimeout is how long a connection may take to answer whether it is alive. The host behind it may have vanished, and the
	// caller may have minutes.
	pingTimeout = 5 * time.Second
	// idle is after how long without use a connection of the pool is asked whether it is alive, as in pgx/stdlib.
	idle = time.Second
)

// Watched returns a connector of pgx whose connections keep a [Trouble], and are replaced when they do not answer.
func Watched(cfg pgx.ConnConfig) driver.Connector { return watched(cfg, idle, pingTimeout) }

func watched(cfg pgx.ConnConfig, idle, patience time.Duration) driver.Connector {
	pgxConnector := stdlib.GetConnector(cfg,
		stdlib.OptionBeforeConnect(func(_ context.Context, one *pgx.ConnConfig) error {
			NoteTrouble(one)
			return nil
		}),
		// database/sql asks before it hands a connection out again. A ping that was given up has closed the connection: then pgx
		// pings once more, fails at once, and the pool takes another connection.
		stdlib.OptionShouldPing(func(ctx context.Context, p stdlib.ShouldPingParams) bool {
			return p.IdleDuration > idle && bounded(ctx, patience, p.Conn.Ping) != nil
		}),
	)
	return watchedConnector{pgxConnector, patience}
}

type watchedConnector struct {
	driver.Connector

	patience time.Duration
}

// Connect opens a connection.
func (c watchedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	opened, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	beneath := opened.(*stdlib.Conn) //nolint:forcetypeassert // GetConnector's
	return &watchedConn{beneath: beneath, patience: c.patience, ending: &TroubleOf(beneath.Conn()).ending}, nil
}

// beneath has another name than Conn, or the field would hide the method Conn, by which [Native] finds pgx.
type beneath = stdlib.Conn

// watchedConn is a connection of [Watched].
type watchedConn struct {
	*beneath

	patience time.Duration
	ending   *ending
	guard    *guard // nil: nothing is refused
}

// EndedTx is for the function of that name.
func (c *watchedConn) EndedTx() string { return c.ending.how }

// BeginTx begins a transaction.
func (c *watchedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if err := c.refuseTx(ctx); err != nil {
		return nil, err
	}
	c.ending.follow(isLater(ctx))
	begun, err := c.beneath.BeginTx(ctx, opts)
	if err != nil {
		c.ending.leave("")
		return nil, err
	}
	return followed{begun, c.ending}, nil
}

// ExecContext runs a statement.
func (c *watchedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if err := c.refuse(ctx, args); err != nil {
		return nil, err
	}
	return c.beneath.ExecContext(ctx, query, args)
}

// QueryContext runs a statement that returns rows.
func (c *watchedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.refuse(ctx, args); err != nil {
		return nil, err
	}
	return c.beneath.QueryContext(ctx, query, args)
}

// PrepareContext prepares a statement.
func (c *watchedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.refuse(ctx, nil); err != nil {
		return nil, err
	}
	s, err := c.beneath.PrepareContext(ctx, query)
	return c.guardStmt(s, c.refuse), err
}

// Ping asks the server for an answer.
func (c *watchedConn) Ping(ctx context.Context) error {
	return bounded(ctx, c.patience, c.beneath.Ping)
}

func bounded(ctx context.Context, limit time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return fn(ctx)
}
