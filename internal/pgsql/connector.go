package pgsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

const (
	// pingTimeout is how long a connection may take to answer whether it is alive. The host behind it may have vanished, and the
	// caller may have minutes.
	pingTimeout = 5 * time.Second
	// pingAfter is after how long without use a connection of the pool is asked whether it is alive, as in pgx/stdlib.
	pingAfter = time.Second
)

// Connector opens connections of pgx whose transactions can share round trips, see [Pipeline]. They keep a [Trouble], know how their transaction
// ended, see [EndedTx], and are replaced when they do not answer. In all else they are those of pgx/stdlib.
type Connector struct {
	driver.Connector

	pooled   bool
	patience time.Duration
	guard    *guard // nil: nothing is refused
}

// ConnectorOption changes what [NewConnector] returns.
type ConnectorOption func(*connectorOptions)

type connectorOptions struct {
	pooled         bool
	idle, patience time.Duration
}

// BehindPooler is for a database behind a pooler of transactions, which loses prepared statements: nothing is prepared, so no statements share a
// round trip.
func BehindPooler() ConnectorOption { return func(o *connectorOptions) { o.pooled = true } }

// NewConnector returns the connector of a database.
func NewConnector(cfg pgx.ConnConfig, opts ...ConnectorOption) *Connector {
	o := connectorOptions{idle: pingAfter, patience: pingTimeout}
	for _, opt := range opts {
		opt(&o)
	}
	beneath := stdlib.GetConnector(cfg,
		stdlib.OptionBeforeConnect(func(_ context.Context, one *pgx.ConnConfig) error {
			NoteTrouble(one)
			return nil
		}),
		// database/sql asks before it hands a connection out again. A ping that was given up has closed the connection: then pgx
		// pings once more, fails at once, and the pool takes another connection.
		stdlib.OptionShouldPing(func(ctx context.Context, p stdlib.ShouldPingParams) bool {
			return p.IdleDuration > o.idle && bounded(ctx, o.patience, p.Conn.Ping) != nil
		}),
	)
	return &Connector{Connector: beneath, pooled: o.pooled, patience: o.patience}
}

// Connect opens a connection.
func (c *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	opened, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	beneath := opened.(*stdlib.Conn) //nolint:forcetypeassert // GetConnector's
	made := &conn{beneath: beneath, patience: c.patience, ending: &TroubleOf(beneath.Conn()).ending, guard: c.guard}
	if !c.pooled {
		made.prepared = map[string]struct{}{}
	}
	return made, nil
}

// OpenGuarded opens a pool that refuses statements, with [ErrPool], whose context carries an open unit of the same pool, or a lease.
//
// A transaction is looked at when it begins, and then no more: statements of a unit may have any context. So it does not matter of which
// unit a context is, and a unit within [Outside] works with the context of the one around it. What is not seen: a statement with
// another context, context.Background() for example, one that is sent by way of [sql.Conn.Raw], and one whose first argument is a pgx.QueryExecMode, as
// those of a [Runner] are.
func OpenGuarded(c *Connector) *sql.DB {
	guarded := *c
	guarded.guard = &guard{}
	guarded.guard.pool = sql.OpenDB(&guarded)
	return guarded.guard.pool
}
