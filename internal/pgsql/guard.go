package pgsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// ErrPool means that a statement was refused because its context says that it should not go to the pool.
var ErrPool = errors.New("uow: a statement was refused that was sent to the pool")

var (
	errInUnit = fmt.Errorf("%w with the context of a unit of work: it would be committed by itself, and stay where the unit is rolled back. "+
		"Send it to the unit: u.DB(), u.SQL(), u.Pgx(), or Manager.DB(ctx). If the pool is meant, give it the context of uow.Outside(ctx)", ErrPool)
	errUnderLease = fmt.Errorf("%w with the context of a handler that runs under a lease: the handler has no transaction, so what the statement "+
		"wrote would stay where the handler fails, and be done again with it. Send it to a unit (inbox.StepInUnit, or Manager.Do). "+
		"If the pool is meant, give it the context of uow.Outside(ctx)", ErrPool)
)

// Unit is a unit of work, as a context carries it.
type Unit interface {
	// OpenIn tells whether a transaction of the pool is open, of this unit or of one around it.
	OpenIn(pool *sql.DB) bool
	// Ended returns [ErrEnded] if tx is the transaction of this unit, or of one around it, and is known to have ended. On connections of
	// [NewConnector] and [Watched] it returns nil: they refuse by themselves.
	Ended(tx *sql.Tx) error
}

type (
	unitKey  struct{}
	leaseKey struct{}
)

// WithUnit returns a context that carries a unit. nil: none.
func WithUnit(ctx context.Context, u Unit) context.Context {
	return context.WithValue(ctx, unitKey{}, u)
}

// UnitOf returns the unit that a context carries, nil if there is none.
func UnitOf(ctx context.Context) Unit {
	u, _ := ctx.Value(unitKey{}).(Unit)
	return u
}

// UnderLease returns the context of a handler that runs without a transaction and may be run again.
func UnderLease(ctx context.Context, pool *sql.DB) context.Context {
	return context.WithValue(ctx, leaseKey{}, pool)
}

// Outside returns a context without the unit, and without the lease, that ctx carries.
func Outside(ctx context.Context) context.Context { return UnderLease(WithUnit(ctx, nil), nil) }

// OpenGuarded opens a pool that refuses statements, with [ErrPool], whose context carries an open unit of the same pool, or a lease. The
// connector is one of [NewConnector] or [Watched].
//
// A transaction is looked at when it begins, and then no more: statements of a unit may have any context. So it does not matter of which
// unit a context is, and a unit within [Outside] works with the context of the one around it. What is not seen: a statement with
// another context, context.Background() for example, one that is sent by way of [sql.Conn.Raw], and one whose first argument is a pgx.QueryExecMode, as
// those of a [Runner] are.
func OpenGuarded(connector driver.Connector) *sql.DB {
	g := &guard{}
	g.pool = sql.OpenDB(guarded{connector, g})
	return g.pool
}

type guarded struct {
	driver.Connector

	guard *guard
}

// Connect opens a connection.
func (c guarded) Connect(ctx context.Context) (driver.Conn, error) {
	opened, err := c.Connector.Connect(ctx)
	switch v := opened.(type) {
	case *conn:
		v.guard = c.guard
	case *watchedConn:
		v.guard = c.guard
	}
	return opened, err
}

// guard is what the connections of one pool refuse statements by.
type guard struct{ pool *sql.DB }

func (g *guard) refuse(ctx context.Context) error {
	if u := UnitOf(ctx); u != nil && u.OpenIn(g.pool) {
		return errInUnit
	}
	if pool, _ := ctx.Value(leaseKey{}).(*sql.DB); pool == g.pool {
		return errUnderLease
	}
	return nil
}

// refuse tells why a statement must not be sent.
func (c *watchedConn) refuse(ctx context.Context, args []driver.NamedValue) error {
	if err := c.ending.refusal(ours(args)); err != nil {
		return err
	}
	if c.guard == nil || c.Conn().PgConn().TxStatus() != 'I' || ours(args) {
		return nil
	}
	return c.guard.refuse(ctx)
}

// ours tells whether a statement says how it is to be sent: then it is a [Runner]'s, which was given the pool on purpose.
func ours(args []driver.NamedValue) bool {
	if len(args) == 0 {
		return false
	}
	_, is := args[0].Value.(pgx.QueryExecMode)
	return is
}

// refuseTx tells why a transaction must not begin. One of [BeginLater] is a unit's.
func (c *watchedConn) refuseTx(ctx context.Context) error {
	if c.guard == nil || isLater(ctx) {
		return nil
	}
	return c.guard.refuse(ctx)
}

// refuse lets pass what is sent in a transaction, also before its BEGIN has been sent.
func (c *conn) refuse(ctx context.Context, args []driver.NamedValue) error {
	if c.tx != nil && !c.tx.ended {
		return c.ending.refusal(ours(args))
	}
	return c.watchedConn.refuse(ctx, args)
}

// guardStmt returns a statement that is looked at each time it is sent: database/sql keeps those that were prepared on a pool.
func (c *watchedConn) guardStmt(s driver.Stmt, refuse func(context.Context, []driver.NamedValue) error) driver.Stmt {
	if prepared, ok := s.(*stdlib.Stmt); ok {
		return guardedStmt{prepared, refuse}
	}
	return s
}

type guardedStmt struct {
	*stdlib.Stmt

	refuse func(context.Context, []driver.NamedValue) error
}

// ExecContext runs the statement.
func (s guardedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.refuse(ctx, args); err != nil {
		return nil, err
	}
	return s.Stmt.ExecContext(ctx, args)
}

// QueryContext runs the statement, which returns rows.
func (s guardedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.refuse(ctx, args); err != nil {
		return nil, err
	}
	return s.Stmt.QueryContext(ctx, args)
}
