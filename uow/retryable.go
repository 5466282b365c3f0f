package uow

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// IsRetryable reports whether the transaction failed because of others, so that the same function may succeed in a new one: a serialization
// failure, a deadlock, [ErrConflict], [ErrConnectionLost], or a statement that was prepared before its table was changed (0A000 "cached plan must
// not change result type" and its like, 26000). For the latter [Manager.Do] runs the function again at once, up to three times beside its tries, on
// a connection that has dropped its prepared statements. A conflict is not retryable if a new aggregate has the id of a softly deleted row: the
// function would make the same aggregate again.
func IsRetryable(err error) bool {
	switch {
	case errors.Is(err, ErrTransactionEnded):
		return false
	case pgerr.IsVictim(err), pgerr.IsOutdated(err), errors.Is(err, ErrConnectionLost):
		return true
	}
	conflict, ok := errors.AsType[*ConflictError](err)
	return errors.Is(err, ErrConflict) && (!ok || !conflict.vain())
}

// Retryable returns an error that code within the unit may have hidden, as an HTTP handler does when it turns an error into an answer: the latest
// error of a Do within the unit, or of any of its statements, for which an outermost Do would run its function again, see [RetryConfig.If]. The
// function of the outermost Do can return this error, and is then run again. Retryable returns nil if there was no such error, or if the same
// function was passed to a Do again and succeeded.
//
// Deadlocks, serialization failures, outdated statements, and an [ErrConnectionLost] that no Do has seen, are noticed on connections of
// config.OpenDB only. If the connection is closed and the cause is not known, as on other connections, or if somebody cancelled a statement,
// Retryable returns an error for which a function is not run again.
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
	fn    uintptr // 0: the level was begun by Manager.Begin
}

// note remembers the error of a level if a function is run again after it.
func (r *root) note(s *savepoint, err error) {
	victim := r.victim()
	if err = r.lost(err); !r.manager.again(err) {
		err = victim
	}
	if err == nil {
		return
	}
	r.onPgx(func(c *pgx.Conn, t *pgsql.Trouble) { t.Forget(c) }) // the connection's error belongs to this level, which is over
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

// function identifies the function of the level by its code, since a loop makes a new closure each time.
func (s *savepoint) function() uintptr {
	if s.fn == nil {
		return 0
	}
	return reflect.ValueOf(s.fn).Pointer()
}

// trouble returns a retryable error that only the connection may have seen.
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

// failure returns the error that failed the transaction, if it has failed and the connection knows why.
func (r *root) failure() (err error) {
	r.onPgx(func(c *pgx.Conn, t *pgsql.Trouble) {
		if first := t.Failure(c); first != nil {
			err = &swallowedError{first}
		}
	})
	return err
}

// swallowed adds the earlier error that failed the transaction to the error of a statement that was refused for it.
func (r *root) swallowed(err error) error {
	if r.closed || pgerr.Code(err) != pgerr.InFailedTransaction {
		return err
	}
	if first := r.failure(); first != nil {
		return fmt.Errorf("%w: %w", first, err)
	}
	return err
}

// onPgx calls fn, unless the connection is not one of pgx or was given back.
func (r *root) onPgx(fn func(*pgx.Conn, *pgsql.Trouble)) {
	_, _ = pgsql.NativeConn(r.conn, func(c *pgx.Conn) error {
		fn(c, pgsql.TroubleOf(c))
		return nil
	})
}

// lost adds [ErrConnectionLost] to an error of a unit whose connection is gone. COMMIT has not been sent, so the server rolls
// back.
//
// A connection is also closed when the caller, or a timeout of the function, cancels a statement. That was intended, so it does not count as a lost
// connection.
func (r *root) lost(err error) error {
	if err == nil || r.closed || errors.Is(err, ErrConnectionLost) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		!pgerr.IsConnectionError(err) || !r.gone() {
		return err
	}
	return fmt.Errorf("%w: %w", ErrConnectionLost, err)
}

// alive reports whether the transaction has not failed and no rows are open, as far as the driver knows. A broken connection shows at COMMIT.
func (r *root) alive() (alive bool) {
	r.onPgx(func(c *pgx.Conn, _ *pgsql.Trouble) {
		alive = !c.IsClosed() && !c.PgConn().IsBusy() && c.PgConn().TxStatus() == 'T'
	})
	return alive
}

// gone reports whether the connection of the transaction is closed, as far as the driver knows.
func (r *root) gone() bool {
	open := false
	r.onPgx(func(c *pgx.Conn, _ *pgsql.Trouble) { open = !c.IsClosed() })
	return !open
}
