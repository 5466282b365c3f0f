package uow

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// IsRetryable tells whether the transaction failed because of others, so that the same function may succeed in a new one: a
// serialization failure, a deadlock, [ErrConflict], [ErrConnectionLost], or a statement that was prepared before its table was changed (0A000 "cached plan
// must not change result type" and its like, 26000). For the latter [Manager.Do] runs the function again at once, up to three times beside its tries, on
// a connection that has forgotten what it had prepared. A new aggregate whose id one has that is deleted softly is no such
// conflict: the function would make it again.
func IsRetryable(err error) bool {
	switch {
	case errors.Is(err, ErrTransactionEnded):
		return false
	case pgsql.IsVictim(err), pgsql.IsOutdated(err), errors.Is(err, ErrConnectionLost):
		return true
	}
	conflict, ok := errors.AsType[*ConflictError](err)
	return errors.Is(err, ErrConflict) && (!ok || !conflict.vain())
}

// Retryable returns a reason not to trust what code within the unit has made of an error, as an HTTP handler makes an answer of
// it: the latest error of a Do within the unit, or of any statement of it, for which an outermost Do would run its function
// again, see [RetryConfig.If]. The function of that Do can ask here and return the error, to be run again. It is nil if there
// was none, and once the very function that had failed was given to a Do again and succeeded: somebody has tried once more.
//
// Deadlocks, serialization failures and outdated statements, and an [ErrConnectionLost] that no Do has seen, are noticed on
// connections of config.OpenDB. Where it is not known why the connection is closed, as on others, or where somebody cancelled a
// statement, the error says so and is none for which a function is run again.
func (u *Unit) Retryable() error {
	r := u.root
	r.mu.Lock()
	hidden := r.hidden
	r.mu.Unlock()
	if len(hidden) > 0 {
		return hidden[len(hidden)-1].err
	}
	return r.trouble()
}

// hidden is an error that code around an inner Do may hide.
type hidden struct {
	err   error
	depth int
	fn    uintptr // 0: that of nobody
}

// note remembers why a level failed, if it is something that calls for another run.
func (r *root) note(s *savepoint, err error) {
	victim := r.victim()
	if err = r.lost(err); !r.manager.again(err) {
		err = victim
	}
	if err == nil {
		return
	}
	r.onPgx(func(c *pgx.Conn, t *pgsql.Trouble) { t.Forget(c) }) // it is this level's
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hidden = append(r.hidden, hidden{err, s.level.depth, s.function()})
}

// recovered forgets the errors of a level that was tried again.
func (r *root) recovered(s *savepoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.hidden) == 0 {
		return
	}
	fn := s.function()
	r.hidden = slices.DeleteFunc(r.hidden, func(h hidden) bool { return h.depth == s.level.depth && h.fn == fn && fn != 0 })
}

// function tells one function from others: by its code, since a loop makes a new closure each time.
func (s *savepoint) function() uintptr {
	if s.fn == nil {
		return 0
	}
	return reflect.ValueOf(s.fn).Pointer()
}

// trouble is what the connection knows of, and maybe nobody else.
func (r *root) trouble() (err error) {
	if r.closed {
		return nil
	}
	r.onPgx(func(c *pgx.Conn, t *pgsql.Trouble) {
		switch {
		case t.Lost(c):
			err = ErrConnectionLost
		case c.IsClosed():
			err = errClosed
		}
	})
	if err == nil {
		err = r.victim()
	}
	return err
}

// victim returns the deadlock or serialization failure that the connection has seen.
func (r *root) victim() (err error) {
	r.onPgx(func(_ *pgx.Conn, t *pgsql.Trouble) { err = t.Victim() })
	if err == nil || !r.manager.cfg.Retry.If(err) {
		return nil
	}
	return err
}

// failure is the error that failed the transaction, if it has failed and the connection knows why.
func (r *root) failure() (err error) {
	r.onPgx(func(c *pgx.Conn, t *pgsql.Trouble) {
		if first := t.Failure(c); first != nil {
			err = &swallowedError{first}
		}
	})
	return err
}

// swallowed adds to the error of a statement which earlier statement had failed.
func (r *root) swallowed(err error) error {
	if r.closed || pgsql.Code(err) != pgsql.CodeInFailedTransaction {
		return err
	}
	if first := r.failure(); first != nil {
		return fmt.Errorf("%w: %w", first, err)
	}
	return err
}

// onPgx calls fn, unless the connection is not one of pgx, or no connection any more.
func (r *root) onPgx(fn func(*pgx.Conn, *pgsql.Trouble)) {
	_, _ = pgsql.NativeConn(r.conn, func(c *pgx.Conn) error {
		fn(c, pgsql.TroubleOf(c))
		return nil
	})
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

// alive tells whether the transaction has not failed and no rows are open, as far as the driver has been told. A connection that
// broke shows at COMMIT.
func (r *root) alive() (alive bool) {
	r.onPgx(func(c *pgx.Conn, _ *pgsql.Trouble) {
		alive = !c.IsClosed() && !c.PgConn().IsBusy() && c.PgConn().TxStatus() == 'T'
	})
	return alive
}

// gone tells whether the connection of the transaction is closed, as far as the driver can tell.
func (r *root) gone() bool {
	open := false
	r.onPgx(func(c *pgx.Conn, _ *pgsql.Trouble) { open = !c.IsClosed() })
	return !open
}
