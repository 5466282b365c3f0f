package uow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Do runs fn in a transaction and commits it together with the events of the tracked aggregates. An error or a panic of fn rolls back. Within the
// function of another unit of this manager it is a savepoint; the options of the transaction then have no effect. Within a unit of another manager
// on the same database it is refused, because it would commit by itself. Within a unit of another database it begins a transaction of its own. See
// the package documentation for both, and for retries.
func (m *Manager) Do(ctx context.Context, fn func(ctx context.Context, u *Unit) error, opts ...Option) error {
	o := options{attempts: m.cfg.Retry.MaxAttempts}
	for _, opt := range opts {
		opt(&o)
	}
	if outer := m.unitFrom(ctx); outer != nil {
		if outer.root.manager != m {
			return errOtherManager
		}
		return outer.root.nested(ctx, fn, &o)
	}
	var before error
	began := time.Now()
	outdated := 0
	// Each turn of the loop is a transaction of its own, on a connection of its own.
	for attempt := 1; ; attempt++ {
		err := m.once(ctx, fn, &o)
		if before != nil && errors.Is(err, ErrStale) {
			// Without the reason for the second try this error would be a riddle.
			return fmt.Errorf("%w (the try before ended with: %w)", err, before)
		}
		if outdated < maxOutdated && o.attempts > 1 && pgerr.IsOutdated(err) && m.again(err) {
			// Run it again on a connection that has forgotten the statement. There is no pause, because no other transaction is in the way, and it does not
			// count as a try.
			outdated, before = outdated+1, err
			attempt--
			m.retries.Add(ctx, 1)
			continue
		}
		// An existing row under the id of a new aggregate is tried again only once: a function that always makes a new
		// aggregate would fail each time.
		if err == nil || attempt >= o.attempts || time.Since(began) >= m.cfg.Retry.MaxElapsed ||
			errors.Is(err, ErrCommitUnknown) || !m.again(err) || errors.Is(err, ErrExists) && errors.Is(before, ErrExists) {
			return err
		}
		before = err
		// The fault that broke this connection has probably broken others of the pool. Each of them would cost a try.
		o.ping = errors.Is(err, ErrConnectionLost)
		m.retries.Add(ctx, 1)
		if m.cfg.Retry.Wait(ctx, attempt) != nil {
			return errors.Join(err, interrupted(ctx))
		}
	}
}

// maxOutdated is how often one function is run again because a statement was outdated, beside its tries. It is more than once because a table may
// change again meanwhile.
const maxOutdated = 3

// again reports whether a function that failed with err is to be run again.
func (m *Manager) again(err error) bool {
	return !errors.Is(err, ErrTransactionEnded) && m.cfg.Retry.If(err)
}

// once is one try: one transaction.
func (m *Manager) once(ctx context.Context, fn func(context.Context, *Unit) error, o *options) error {
	l, err := m.begin(ctx, o)
	if err != nil {
		return err
	}
	return l.end(ctx, func() error {
		u := l.in(ctx)
		return fn(u.ctx, u)
	})
}

// begin takes a connection and begins a transaction on it.
func (m *Manager) begin(ctx context.Context, o *options) (*level, error) {
	conn, err := m.pool.take(ctx, o.ping)
	if err != nil {
		return nil, fmt.Errorf("uow: get a connection to the database: %w", err)
	}
	session := sessionOf(ctx, conn)
	if sharesDatabase(ctx, conn) {
		_ = conn.Close()
		return nil, errOtherManager
	}
	r := &root{
		manager: m, stale: &o.stale, token: o.token,
		tx: transaction{conn: conn, limit: m.cfg.CommitTimeout, session: session},
	}
	if err = r.tx.begin(ctx, &o.tx); err != nil {
		err = r.tx.lost(err)
		r.tx.release()
		return nil, fmt.Errorf("uow: begin: %w", err)
	}
	r.outer = find(ctx, func(*level) bool { return true })
	r.whole = level{root: r, around: o.nestedChecks}
	r.active = &r.whole
	return r.active, nil
}

// begin sends BEGIN, or leaves it to the first statement. The caller's context must not cancel the transaction: database/sql would then roll it back
// at any time, also during COMMIT. So the transaction has a context of its own, which follows the caller's only until BEGIN has been answered.
func (t *transaction) begin(ctx context.Context, o *sql.TxOptions) (err error) {
	// Before BEGIN: if ctx ends afterwards, database/sql rolls back in a goroutine of its own and may close the connection meanwhile. A Raw at that
	// moment panics (database/sql.Conn.grabConn). A connection that is broken shows at BEGIN.
	_ = t.conn.Raw(func(c any) error {
		_, t.exact = pgsql.EndedTx(c)
		return nil
	})
	if t.exact {
		t.bun, err = t.conn.BeginTx(pgsql.BeginLater(ctx, t.limit), o)
	} else {
		err = t.beginMarked(ctx, o)
	}
	// Return the error of the context. The driver's error may look different, because a cancelled statement breaks the connection.
	if gone := interrupted(ctx); gone != nil {
		if err == nil {
			_ = t.bun.Rollback()
		}
		return gone
	}
	return err
}

// beginMarked begins on a connection that does not report how a transaction ends, and sets the mark.
func (t *transaction) beginMarked(ctx context.Context, o *sql.TxOptions) (err error) {
	var own context.Context
	own, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, t.cancel)()
	if t.bun, err = t.conn.BeginTx(own, o); err != nil {
		return err
	}
	if _, err = t.bun.Tx.ExecContext(own, mark); err != nil {
		_ = t.bun.Rollback()
	}
	return err
}

// sessionOf identifies server and backend before BEGIN, because after a lost COMMIT nobody can ask this
// connection any more.
func sessionOf(ctx context.Context, conn bun.Conn) (s pgsql.Session) {
	_, _ = pgsql.NativeConn(conn, func(c *pgx.Conn) error { // a broken connection shows at BEGIN
		pgsql.TroubleOf(c).Forget(c)
		s = pgsql.SessionOf(ctx, c)
		return nil
	})
	return s
}

// sharesDatabase reports whether one of the units around is in the database of conn, through another pool. Two transactions of one goroutine in one
// database can wait for each other for ever, and the server would not notice that as a deadlock.
func sharesDatabase(ctx context.Context, conn bun.Conn) bool {
	return find(ctx, func(u *level) (shares bool) {
		if u.parent == nil { // one check for each transaction, not for its savepoints
			_, _ = pgsql.NativeConn(conn, func(c *pgx.Conn) error {
				shares = u.root.tx.session.Beside(ctx, c)
				return nil
			})
		}
		return shares
	}) != nil
}

// end does the last of the work and commits, or rolls back.
func (u *level) end(ctx context.Context, work func() error) error {
	ended := rolledBack
	defer func() {
		// After a panic and runtime.Goexit as well, which t.FailNow calls.
		u.root.rollback()
		u.root.manager.count(ctx, ended)
	}()
	err := work()
	if err == nil {
		err = u.finish(ctx)
	}
	if err == nil {
		ended = committed
		return nil
	}
	// The explanation says what the error of the statement cannot: that the connection was lost, or that an
	// earlier error was ignored.
	if err = u.root.tx.explain(ctx, err, u.root.doomedBy()); errors.Is(err, ErrCommitUnknown) {
		ended = unknown
	}
	if pgerr.IsOutdated(err) {
		u.root.manager.pool.outdated.Add(1)
	}
	return err
}

// interrupted is the context's error together with its cause, nil if there is none.
func interrupted(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || cause == err { //nolint:errorlint // the very same value, not an error that matches
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
