package uow

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// transaction is a transaction of PostgreSQL on a connection that goes back to the pool at its end.
type transaction struct {
	conn bun.Conn
	bun  bun.Tx
	// limit is how long COMMIT and ROLLBACK may take, Config.CommitTimeout. Afterwards cancel breaks them off; an exact connection does that itself.
	limit  time.Duration
	cancel context.CancelFunc // nil: exact
	// session identifies the server and the backend, for [inquiry].
	session pgsql.Session
	// closed: COMMIT or ROLLBACK was sent.
	closed bool
	// exact: the connection notices if somebody else ends the transaction.
	exact bool

	// xid is the id of the transaction. "": it is not known yet, or, at COMMIT, the transaction wrote nothing. identified may be called by several
	// goroutines, so mu guards it.
	mu  sync.Mutex
	xid string
}

const (
	// mark is set in the transaction of a unit on a connection that does not report which statements are sent over it (config.UseDB). It disappears
	// with the transaction, also after COMMIT AND CHAIN. Unlike a query it takes no snapshot, so SET TRANSACTION is still possible.
	mark = `SET LOCAL oncebox.unit = 'open'`

	// probe proves that the transaction is alive and has the mark, and asks for its id without assigning one.
	probe = `SELECT coalesce(pg_current_xact_id_if_assigned()::text, ''), coalesce(current_setting('oncebox.unit', true), '') = 'open'`
)

// endedUnseen describes how a transaction ended when all that is known is that another transaction runs in its place.
const endedUnseen = "COMMIT or ROLLBACK, and another one was begun"

// identified sets the id of the transaction.
func (t *transaction) identified(xid string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.xid = xid
}

// probed asks the server whether the transaction is alive, and whether it is still the transaction that the unit began.
func (t *transaction) probed(ctx context.Context) error {
	var xid string
	var ours bool
	if err := t.bun.Tx.QueryRowContext(ctx, probe).Scan(&xid, &ours); err != nil {
		if gone := interrupted(ctx); gone != nil {
			return fmt.Errorf("uow: before COMMIT: %w", gone)
		}
		return fmt.Errorf("uow: before COMMIT the transaction was found failed or busy: an error was not returned, or rows were not closed: %w", err)
	}
	if !t.exact && !ours {
		return &pgerr.EndedError{How: endedUnseen}
	}
	t.xid = xid
	return nil
}

// exec runs a statement without parameters, unless the transaction has ended.
func (t *transaction) exec(ctx context.Context, statement string) error {
	if err := t.ended(); err != nil {
		return err
	}
	_, err := t.bun.Tx.ExecContext(ctx, statement)
	if !t.exact && pgerr.Code(err) == pgerr.NoSavepoint {
		return &pgerr.EndedError{How: endedUnseen, Err: err}
	}
	return err
}

// rollback sends ROLLBACK. The caller's context does not cancel it. If the connection is gone, so is the transaction.
func (t *transaction) rollback() {
	t.closed = true
	_ = t.limited(t.bun.Rollback)
	t.release()
}

// limited calls COMMIT or ROLLBACK of database/sql, which take no context.
func (t *transaction) limited(end func() error) error {
	if t.cancel != nil {
		defer time.AfterFunc(t.limit, t.cancel).Stop()
	}
	return end()
}

// release gives the connection back to the pool.
func (t *transaction) release() {
	if t.cancel != nil {
		t.cancel()
	}
	_ = t.conn.Close()
}

// ended returns [ErrTransactionEnded] if the connection knows that the transaction is not that of the unit any more.
func (t *transaction) ended() error {
	if how := t.endedHow(); how != "" {
		return &pgerr.EndedError{How: how}
	}
	return nil
}

func (t *transaction) endedHow() (how string) {
	if t.closed {
		return ""
	}
	_ = t.conn.Raw(func(c any) error {
		how, _ = pgsql.EndedTx(c)
		return nil
	})
	return how
}

// alive reports whether the transaction has not failed and no rows are open, as far as the driver knows. A broken connection shows at COMMIT.
func (t *transaction) alive() (alive bool) {
	t.onPgx(func(c *pgx.Conn, _ *pgsql.Trouble) {
		alive = !c.IsClosed() && !c.PgConn().IsBusy() && c.PgConn().TxStatus() == 'T'
	})
	return alive
}

// gone reports whether the connection is closed, as far as the driver knows.
func (t *transaction) gone() bool {
	open := false
	t.onPgx(func(c *pgx.Conn, _ *pgsql.Trouble) { open = !c.IsClosed() })
	return !open
}

// broken returns why the connection is closed, nil if it is open.
func (t *transaction) broken() (err error) {
	t.onPgx(func(c *pgx.Conn, trouble *pgsql.Trouble) {
		switch {
		case trouble.Lost(c):
			err = ErrConnectionLost
		case c.IsClosed():
			err = errClosed
		}
	})
	return err
}

// victim returns the deadlock, the serialization failure or the outdated statement that the connection has seen last, even if its error was
// ignored.
func (t *transaction) victim() (err error) {
	t.onPgx(func(_ *pgx.Conn, trouble *pgsql.Trouble) { err = trouble.Victim() })
	return err
}

// failure returns the error that failed the transaction, if it has failed and the connection knows why.
func (t *transaction) failure() (err error) {
	t.onPgx(func(c *pgx.Conn, trouble *pgsql.Trouble) {
		if first := trouble.Failure(c); first != nil {
			err = &swallowedError{first}
		}
	})
	return err
}

// onPgx calls fn, unless the connection is not one of pgx or was given back.
func (t *transaction) onPgx(fn func(*pgx.Conn, *pgsql.Trouble)) {
	_, _ = pgsql.NativeConn(t.conn, func(c *pgx.Conn) error {
		fn(c, pgsql.TroubleOf(c))
		return nil
	})
}

// explain adds to the error of a unit how its transaction ended, as far as that is known. doomed is why the unit could not be committed
// any more, nil if it could.
func (t *transaction) explain(ctx context.Context, err, doomed error) error {
	return t.taken(ctx, t.lost(t.swallowed(err)), doomed)
}

// swallowed adds the earlier error that failed the transaction to the error of a statement that was refused for it.
func (t *transaction) swallowed(err error) error {
	if t.closed || pgerr.Code(err) != pgerr.InFailedTransaction {
		return err
	}
	if first := t.failure(); first != nil {
		return fmt.Errorf("%w: %w", first, err)
	}
	return err
}

// lost adds [ErrConnectionLost] to an error of a unit whose connection is gone. COMMIT has not been sent, so the server rolls back.
//
// A connection is also closed when the caller, or a timeout of the function, cancels a statement. That was intended, so it does not count as a lost
// connection.
func (t *transaction) lost(err error) error {
	if err == nil || t.closed || errors.Is(err, ErrConnectionLost) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		!pgerr.IsConnectionError(err) || !t.gone() {
		return err
	}
	return fmt.Errorf("%w: %w", ErrConnectionLost, err)
}

// taken makes an [ErrTransactionEnded] of the error of a unit whose function has ended the transaction itself. If the function
// called Rollback and failed, its error stays as it is.
func (t *transaction) taken(ctx context.Context, err, doomed error) error {
	how := t.endedHow()
	if !t.exact && !t.closed && how == "" {
		how, err = t.unseen(ctx, err)
	}
	done, ended := errors.Is(err, sql.ErrTxDone), errors.Is(err, ErrTransactionEnded)
	if !ended && errors.Is(doomed, ErrTransactionEnded) {
		err, ended = errors.Join(doomed, err), true // an inner unit ended it, and the function did not return that error
	}
	if t.closed || how == "" && !done && !ended || how == pgsql.EndedByRollback && !done && !ended {
		return err
	}
	if before, ok := errors.AsType[*pgerr.EndedError](err); ok && how == "" {
		how = before.How
	}
	return &pgerr.EndedError{How: cmp.Or(how, "COMMIT or ROLLBACK"), XID: t.xid, Err: err}
}

// unseen finds out, on a connection that does not report it, whether another transaction has taken the place of the unit's, after the unit failed
// with err. A failed transaction does not answer.
func (t *transaction) unseen(ctx context.Context, err error) (how string, _ error) {
	switch {
	case t.alive():
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.limit)
		defer cancel()
		if look := t.probed(ctx); errors.Is(look, ErrTransactionEnded) {
			how = endedUnseen
		}
	case t.xid != "" && !t.gone():
		err = &pgerr.UncertainError{XID: t.xid, Err: err}
	}
	return how, err
}
