package uow

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// IsRetryable tells whether the transaction failed because of others, so that the same function may succeed in a new one: a
// serialization failure, a deadlock, [ErrConflict] or [ErrConnectionLost].
func IsRetryable(err error) bool {
	switch pgsql.Code(err) {
	case pgsql.CodeSerialization, pgsql.CodeDeadlock:
		return true
	}
	return errors.Is(err, ErrConflict) || errors.Is(err, ErrConnectionLost)
}

// Retryable returns the latest error of an inner Do for which an outermost one would run its function again, see
// [RetryConfig.If]. nil if there was none. Code that turns errors into something else, as an HTTP handler does, hides them
// from the Do around it; that Do's function can ask here and return the error, to be run again.
func (u *Unit) Retryable() error {
	if err := u.root.hidden.Load(); err != nil {
		return *err
	}
	return nil
}

// note remembers an error that code between an inner and an outer Do may hide.
func (r *root) note(err error) {
	if err == nil {
		return
	}
	if err = r.lost(err); r.manager.cfg.Retry.If(err) {
		r.hidden.Store(&err)
	}
}

// lost adds [ErrConnectionLost] to an error of a unit whose connection is gone. COMMIT has not been sent, so the server rolls
// back.
//
// A connection is also closed when a statement is cancelled, by the caller or by a function that gave it less time. That is
// somebody's decision and no accident.
func (r *root) lost(err error) error {
	if err == nil || r.closed || errors.Is(err, ErrConnectionLost) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		!pgsql.IsConnectionError(err) || !r.gone() {
		return err
	}
	return fmt.Errorf("%w: %w", ErrConnectionLost, err)
}

// gone tells whether the connection of the transaction is closed, as far as the driver can tell.
func (r *root) gone() bool {
	open := false
	ok, err := pgsql.Native(context.Background(), r.conn, func(c *pgx.Conn) error {
		open = !c.IsClosed()
		return nil
	})
	return !ok || err != nil || !open
}
