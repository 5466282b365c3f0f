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
	// pingAfter is the idle time after which a connection of the pool is pinged before its next use, as in pgx/stdlib.
	pingAfter = time.Second
)

// Connector opens connections of pgx whose transactions can share round trips, see [Send]. They keep a [Trouble], know how their transaction
// ended, see [EndedTx], and are replaced when they do not answer. In all other respects they are connections of pgx/stdlib.
type Connector struct {
	driver.Connector

	pooled   bool
	patience time.Duration
	guard    *guard          // nil: nothing is refused
	tracer   pgx.BatchTracer // nil: none
}

// ConnectorOption changes the connector of [NewConnector].
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
		// database/sql asks before it hands out a connection again. A ping that times out closes the connection: then pgx pings once more, fails at once,
		// and the pool takes another connection.
		stdlib.OptionShouldPing(func(ctx context.Context, p stdlib.ShouldPingParams) bool {
			return p.IdleDuration > o.idle && bounded(ctx, o.patience, p.Conn.Ping) != nil
		}),
	)
	tracer, _ := cfg.Tracer.(pgx.BatchTracer)
	return &Connector{Connector: beneath, pooled: o.pooled, patience: o.patience, tracer: tracer}
}

// Connect opens a connection.
func (c *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	opened, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	beneath := opened.(*stdlib.Conn) //nolint:forcetypeassert // GetConnector's
	made := &conn{beneath: beneath, patience: c.patience, ending: &TroubleOf(beneath.Conn()).ending, guard: c.guard, tracer: c.tracer}
	if !c.pooled {
		made.prepared = map[string]prepared{}
	}
	return made, nil
}

// OpenGuarded opens a pool that refuses statements, with [ErrPool], whose context carries an open unit of the same pool, or a lease.
//
// After BEGIN the context is not checked again. A statement may use the context of another unit, and a unit within [Outside] works with the context
// of the unit around it. Not checked are: a statement with another context, such as context.Background(), a statement that is sent by way of
// [sql.Conn.Raw], and a statement whose first argument is a pgx.QueryExecMode, as in statements of a [Runner].
func OpenGuarded(c *Connector) *sql.DB {
	guarded := *c
	guarded.guard = &guard{}
	guarded.guard.pool = sql.OpenDB(&guarded)
	return guarded.guard.pool
}
