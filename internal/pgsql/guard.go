package pgsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
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
	// OpenIn reports whether a transaction of the pool is open, of this unit or of one around it.
	OpenIn(pool *sql.DB) bool
	// Ended returns [pgerr.ErrEnded] if tx is the transaction of this unit, or of one around it, and is known to have ended. On connections of a
	// [Connector] it returns nil: they refuse by themselves.
	Ended(tx *sql.Tx) error
}

type (
	unitKey  struct{}
	leaseKey struct{}
)

// UnitContext is a context that carries a unit.
type UnitContext struct {
	context.Context //nolint:containedctx // it is a context

	Unit Unit // nil: none
}

// Value returns the unit, and the values of the context around it.
func (c *UnitContext) Value(key any) any {
	if key == (unitKey{}) {
		return c.Unit
	}
	return c.Context.Value(key)
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
func Outside(ctx context.Context) context.Context { return UnderLease(&UnitContext{Context: ctx}, nil) }

// guard holds the pool for which its connections refuse statements.
type guard struct{ pool *sql.DB }

// refuse returns why a statement must not go to the pool, nil if it may.
func (g *guard) refuse(ctx context.Context) error {
	if u := UnitOf(ctx); u != nil && u.OpenIn(g.pool) {
		return errInUnit
	}
	if pool, _ := ctx.Value(leaseKey{}).(*sql.DB); pool == g.pool {
		return errUnderLease
	}
	return nil
}

// refuse returns the error of a statement that must not be sent. Statements in a transaction pass, also if its BEGIN has been put off.
func (c *conn) refuse(ctx context.Context, args []driver.NamedValue) error {
	if err := c.ending.refusal(ours(args)); err != nil {
		return err
	}
	if c.guard == nil || c.tx != nil && !c.tx.ended || c.Conn().PgConn().TxStatus() != 'I' || ours(args) {
		return nil
	}
	return c.guard.refuse(ctx)
}

// ours reports whether a statement carries its own mode of sending: then it is a statement of a [Runner], which got the pool on purpose.
func ours(args []driver.NamedValue) bool {
	if len(args) == 0 {
		return false
	}
	_, is := args[0].Value.(pgx.QueryExecMode)
	return is
}

// refuseTx returns the error of a transaction that must not begin. A transaction of [BeginLater] passes, because it belongs to a unit.
func (c *conn) refuseTx(ctx context.Context) error {
	if c.guard == nil || laterOf(ctx) != nil {
		return nil
	}
	return c.guard.refuse(ctx)
}
