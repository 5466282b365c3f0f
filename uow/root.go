package uow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/quietlog"
)

// root is the transaction that a unit and its savepoints share.
type root struct {
	manager *Manager
	conn    bun.Conn
	tx      bun.Tx
	cancel  context.CancelFunc
	// outer is the unit of another database that was open around this one.
	outer *level
	// session identifies the server and the backend of the transaction, for [root.resolve].
	session pgsql.Session
	// xid is the id of the transaction. "": it is not known yet, or, at COMMIT, the transaction wrote nothing.
	xid string
	// token is set at COMMIT if the caller asked for a token. nil: it did not.
	token *Token
	// flushed holds the events that Unit.Token passed to the sinks before the end. nil: none.
	flushed *flushed
	// used: a context was asked for the unit.
	used atomic.Bool
	// closed: COMMIT or ROLLBACK was sent.
	closed bool
	// exact: the connection notices if somebody else ends the transaction, see ended.
	exact bool

	mu sync.Mutex
	// active is the innermost level. Like savepoints, the level that was opened last ends first.
	active *level
	// doomed is why the transaction must not be committed any more, whatever the function returns.
	doomed error
	stale  staleSet
	saved  map[event.Aggregate]*write
	hidden []hidden // see Unit.Retryable

	// handled counts the events of an aggregate that the handlers of On have seen.
	handled map[event.Aggregate]int
	// named are the ids of events that the caller chose.
	named map[string]struct{}
}

// staleSet holds the aggregates that lived through a rollback, within this try or an earlier one.
type staleSet map[event.Aggregate]struct{}

func (s staleSet) add(entries []entry) {
	for _, e := range entries {
		if e.aggregate != nil {
			s[e.aggregate] = struct{}{}
		}
	}
}

func (m *Manager) begin(ctx context.Context, o *options, stale staleSet) (*level, error) {
	// The wait for a pooled connection lasts as long as the caller's context.
	stop := m.watch(ctx)
	conn, err := m.connection(ctx, o.ping)
	stop()
	if err != nil {
		return nil, fmt.Errorf("uow: get a connection to the database: %w", m.exhausted(err))
	}
	session := sessionOf(ctx, conn)
	if sharesDatabase(ctx, conn) {
		_ = conn.Close()
		return nil, errOtherManager
	}
	// But the caller's context must not cancel the transaction: database/sql would then roll it back at any time, also during COMMIT. So the
	// transaction has a context of its own, which follows the caller's only until BEGIN has been answered.
	txCtx, cancel := context.WithCancel(pgsql.BeginLater(context.WithoutCancel(ctx)))
	unhook := context.AfterFunc(ctx, cancel)
	r := &root{manager: m, conn: conn, session: session, cancel: cancel, token: o.token, stale: stale}
	r.tx, err = conn.BeginTx(txCtx, &o.tx)
	if err == nil {
		if err = r.marked(txCtx); err != nil {
			_ = r.tx.Rollback()
		}
	}
	if !unhook() {
		if err == nil {
			_ = r.tx.Rollback() // database/sql is doing the same
		}
		// Return the error of the context. The driver's error may look different, because a cancelled statement breaks the connection.
		err = interrupted(ctx)
	}
	if err != nil {
		err = r.lost(err)
		r.release()
		return nil, fmt.Errorf("uow: begin: %w", err)
	}
	r.outer = find(ctx, func(*level) bool { return true })
	r.active = &level{root: r, around: o.nestedChecks}
	return r.active, nil
}

// connection takes a connection from the pool. The pool checks only connections that have been idle for a while; with ping, every connection is
// checked. Once a statement was outdated, connections drop the statements that they prepared before.
func (m *Manager) connection(ctx context.Context, ping bool) (bun.Conn, error) {
	conn, err := m.db.Conn(ctx)
	outdated := m.outdated.Load()
	if !ping && outdated == 0 {
		return conn, err
	}
	good := func() bool {
		return (!ping || conn.PingContext(ctx) == nil) && (outdated == 0 || pgsql.Fresh(ctx, conn, outdated))
	}
	for left := m.db.Stats().OpenConnections; left > 0 && err == nil && !good(); left-- {
		_ = conn.Close()
		conn, err = m.db.Conn(ctx)
	}
	return conn, err
}

// exhausted adds to the error that all connections are in use, if they are. The usual reason is code that takes a second connection of the pool
// while its unit has one: it waits for units that may be waiting in the same way.
func (m *Manager) exhausted(err error) error {
	most, all := m.allInUse()
	if !all || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: all %d connections of the pool are in use. %s", err, most, starvedAdvice)
}

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
				shares = u.root.session.Beside(ctx, c)
				return nil
			})
		}
		return shares
	}) != nil
}

// interrupted is the context's error together with its cause, nil if there is none.
func interrupted(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || cause == err { //nolint:errorlint // the very same value, not an error that matches
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// identified sets the id of the unit's transaction.
func (r *root) identified(xid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.xid = xid
}

// doom makes sure that the transaction is not committed, even if the function ignores the error.
func (r *root) doom(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.doomed == nil {
		r.doomed = err
	}
}

func (r *root) doomedBy() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.doomed
}

// seal ends the unit and returns its entries. An event that was added afterwards would not be emitted, so adding one fails from now on.
func (r *root) seal(u *level) ([]entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doomIfOpen(u)
	u.ended = true
	if r.doomed != nil {
		return nil, fmt.Errorf("uow: the unit cannot be committed: %w", r.doomed)
	}
	return u.entries, nil
}

// doomIfOpen fails the transaction if a level that ends is not the innermost one: a unit within it has not ended, or a unit that ran at the same
// time has undone or released a part of its work.
func (r *root) doomIfOpen(u *level) {
	if r.active == u {
		return
	}
	r.doomed = errParallel
	for inner := r.active; inner != nil; inner = inner.parent {
		if inner == u {
			r.doomed = errUnended
		}
	}
}

// abandon marks all aggregates of the unit as stale.
func (r *root) abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for u := r.active; u != nil; u = u.parent {
		r.stale.add(u.entries)
		u.ended = true
	}
}

// rollback ends the unit without COMMIT. It does nothing to a unit that has been committed or rolled back.
func (r *root) rollback() {
	if r.closed {
		return
	}
	r.closed = true
	r.abandon()
	// The caller's context does not cancel the rollback either. If the connection is gone, so is the transaction.
	timer := time.AfterFunc(r.manager.cfg.CommitTimeout, r.cancel)
	_ = r.tx.Rollback()
	timer.Stop()
	r.release()
}

// release gives the connection back to the pool.
func (r *root) release() {
	r.cancel()
	_ = r.conn.Close()
}

const (
	// starvedAfter is how long a unit waits for a connection before that is logged.
	starvedAfter = 10 * time.Second
	// starvedInterval is how often that is logged at most, however many units wait.
	starvedInterval = time.Minute

	starvedAdvice = "Code that uses the pool within a unit of work takes a second one, and may wait for ever for others that do so too: " +
		"use the unit there (uow.FromContext), or allow more (SetMaxOpenConns)"
)

// starved limits how often the log says that units wait for a connection. Without this line a unit whose context has no deadline would wait for
// ever, and nobody would know why.
type starved struct {
	after time.Duration
	mu    sync.Mutex
	told  time.Time
}

// due reports whether it is to be logged now, and notes that it was.
func (s *starved) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.told.IsZero() && now.Sub(s.told) < starvedInterval {
		return false
	}
	s.told = now
	return true
}

// watch logs once if the unit still waits for a connection after starvedAfter, and all connections are in use. The caller calls stop when the wait
// is over.
func (m *Manager) watch(ctx context.Context) (stop func() bool) {
	return time.AfterFunc(m.starved.after, func() {
		if most, all := m.allInUse(); all && m.starved.due(time.Now()) {
			ctx := quietlog.Away(ctx, quietlog.Database)
			m.log.WarnContext(ctx, "oncebox: a unit of work waits for a connection to the database, and all of the pool are in use. "+starvedAdvice,
				"connections", most, "waited", m.starved.after)
		}
	}).Stop
}

// allInUse returns how many connections the pool may have, and whether all of them are in use.
func (m *Manager) allInUse() (most int, all bool) {
	s := m.db.Stats()
	return s.MaxOpenConnections, s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections
}
