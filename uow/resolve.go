package uow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgsql"
)

const (
	// status tells what became of a transaction: committed, aborted, in progress, or NULL when the server has forgotten it. It is NULL
	// as well where the server may have given the id to another transaction: where neither its mark is the one of the session, nor
	// the session goes on.
	status = `
SELECT pg_is_in_recovery(), coalesce(mark, ''), CASE WHEN same THEN pg_xact_status($1::text::xid8) END` + fromMark

	// terminate ends the session of a transaction that is in progress still. It leaves a session alone that may be waiting for the
	// synchronous standby: to end it would end the wait, and others would see a transaction that no standby has. Where a lock is
	// waited for, or what the client sends next, COMMIT has not come so far.
	terminate = `
SELECT count(pg_terminate_backend(a.pid))` + fromMark + ` JOIN pg_stat_activity a ON same
WHERE a.backend_xid::text = mod($1::text::numeric, 4294967296)::text AND a.pid <> pg_backend_pid()
	AND (current_setting('synchronous_standby_names') = '' OR a.state LIKE 'idle in transaction%' OR a.wait_event_type = 'Lock'
		OR a.wait_event = 'ClientRead')`

	fromMark = `
FROM (SELECT mark, coalesce(mark = $2::text, false)
		OR EXISTS (SELECT FROM pg_stat_get_activity($3::int) WHERE backend_start = $4::timestamptz) AS same
	FROM (SELECT ` + pgsql.Mark + ` AS mark) now) server`

	// confirm waits for the synchronous standby, if there is one, until it has all that is committed now. A transaction that writes
	// nothing would not wait.
	confirm = `SELECT CASE WHEN current_setting('synchronous_standby_names') <> '' THEN pg_logical_emit_message(true, 'oncebox', '') END`
)

// Proof looks for a row that only the transaction with the id xid can have written, once it may have committed. It must not
// have to search a table for it. false: it is not there, or cannot be told from one of another transaction.
type Proof func(ctx context.Context, db bun.IDB, xid string) (bool, error)

// proofs are ways to find rows of a unit.
type proofs struct {
	events []event.Envelope
	rows   []Proof
}

// resolve finds out on another connection what became of the transaction.
//
// Its id tells as long as the server has lived on. After a crash, ids whose transactions did not reach the disk are given to
// others: "committed" would be said of somebody else's work, and to end what is in progress would end somebody else's session.
// Then only a row counts that nobody else can have written.
//
// While the transaction is in progress its backend has not noticed that the client is gone, or is still committing. It is told to
// end, or it could stay so, with all its locks, until TCP gives up; if it is past the point of no return it commits first.
func (r *root) resolve(ctx context.Context, lost error, p proofs) error {
	ctx, cancel := context.WithTimeout(ctx, r.manager.cfg.CommitTimeout)
	defer cancel()
	var reason error // why there is no answer, or why the session goes on
	for attempt := 1; ; attempt++ {
		became, err := r.inquire(ctx, p)
		switch became {
		case isCommitted:
			return nil
		case isAborted:
			r.abandon()
			return fmt.Errorf("uow: commit: %w: %w", ErrConnectionLost, lost)
		case isUnknown:
			return r.unknown(errors.Join(lost, err))
		case isOpen:
		}
		if reason == nil || ctx.Err() == nil { // that the time is up says less than what was wrong before
			reason = err
		}
		if backoff.Wait(ctx, backoff.Jitter(backoff.Exponential(attempt, 10*time.Millisecond, time.Second))) != nil {
			return r.unknown(errors.Join(lost, reason))
		}
	}
}

// fate is what became of a transaction.
type fate int

const (
	isOpen fate = iota // it may be told later
	isCommitted
	isAborted
	isUnknown // it will not be told later either
)

// codeFutureXID is the answer to status on a server that has not come that far: not the one we were on.
const codeFutureXID = "22023"

// inquire asks once. All questions go to one session: another one of the pool may be that of another server.
func (r *root) inquire(ctx context.Context, p proofs) (fate, error) {
	conn, err := r.manager.db.Conn(ctx)
	if err != nil {
		return isOpen, err
	}
	defer func() { _ = conn.Close() }()
	recovering, mark, outcome, err := r.status(ctx, conn)
	switch {
	case err != nil && pgsql.Code(err) != codeFutureXID, recovering: // no answer, or that of a standby
		return isOpen, err
	case outcome == "committed":
		return confirmed(ctx, conn)
	case outcome == "aborted":
		return isAborted, nil
	case outcome != "": // in progress
		return isOpen, r.terminate(ctx, conn)
	}
	found, notFound := r.found(ctx, conn, p)
	switch {
	case found:
		return confirmed(ctx, conn)
	case notFound != nil && pgsql.Code(notFound) == "":
		return isOpen, notFound
	}
	return isUnknown, errors.Join(fmt.Errorf("%w (mark %q, and %q when the session began)", errForgotten, mark, r.session.Mark), err, notFound)
}

// errForgotten is why the status of a transaction and its rows do not tell what became of it.
var errForgotten = errors.New("the server has recovered from a crash since, is another one, or has forgotten the transaction, " +
	"and no row was found that only this unit can have written")

// status asks for the status of the transaction. outcome "": the server cannot tell.
func (r *root) status(ctx context.Context, conn bun.Conn) (recovering bool, mark, outcome string, err error) {
	var told sql.NullString
	err = conn.Conn.QueryRowContext(ctx, r.question(status), r.subject()...).Scan(&recovering, &mark, &told)
	return recovering, mark, told.String, err
}

func (r *root) terminate(ctx context.Context, conn bun.Conn) error {
	var ended int
	return conn.Conn.QueryRowContext(ctx, r.question(terminate), r.subject()...).Scan(&ended)
}

// question returns the statement as the server understands it.
func (r *root) question(statement string) string {
	if r.session.Timeline == "" {
		return strings.Replace(statement, pgsql.Mark, pgsql.MarkAlone, 1)
	}
	return statement
}

// subject are the arguments of status and terminate.
func (r *root) subject() []any {
	return []any{r.xid, r.session.Mark, r.session.PID, r.session.Start}
}

// found looks for a row of the unit.
func (r *root) found(ctx context.Context, conn bun.Conn, p proofs) (bool, error) {
	var errs []error
	for _, find := range p.rows {
		is, err := find(ctx, conn, r.xid)
		if is {
			return true, nil
		}
		errs = append(errs, err)
	}
	own := r.own(p.events)
	for _, s := range r.manager.sinks {
		if sink, ok := s.(FindSink); ok && len(own) > 0 {
			is, err := sink.Find(ctx, conn, own)
			if is {
				return true, nil
			}
			errs = append(errs, err)
		}
	}
	return false, errors.Join(errs...)
}

// own returns the events whose ids were made for this try: of the others there may be rows of other units.
func (r *root) own(events []event.Envelope) (own []event.Envelope) {
	for i := range events {
		if _, named := r.named[events[i].ID]; !named && events[i].Delivery.DedupKey == "" {
			own = append(own, events[i])
		}
	}
	return own
}

// confirmed waits until what was found committed is confirmed as the unit's own COMMIT would have been.
func confirmed(ctx context.Context, conn bun.Conn) (fate, error) {
	watch := func(fn func(*pgx.Conn, *pgsql.Trouble)) {
		_, _ = pgsql.Native(ctx, conn, func(c *pgx.Conn) error {
			fn(c, pgsql.TroubleOf(c))
			return nil
		})
	}
	watch(func(c *pgx.Conn, t *pgsql.Trouble) { t.Forget(c) })
	if _, err := conn.Conn.ExecContext(ctx, confirm); err != nil {
		return isOpen, err
	}
	became, err := isCommitted, error(nil)
	watch(func(_ *pgx.Conn, t *pgsql.Trouble) {
		if t.Unconfirmed() {
			became, err = isOpen, errUnconfirmed
		}
	})
	return became, err
}

func (r *root) unknown(err error) error {
	s := r.session
	return &CommitUnknownError{XID: r.xid, PID: s.PID, Start: s.Start, Timeline: s.Timeline, Err: err}
}
