package uow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/unit"
	"github.com/oncebox/oncebox/retry"
)

const (
	// status returns the outcome of a transaction: committed, aborted, in progress, or NULL if the server cannot know. It is also NULL if another
	// transaction may have the same id by now: if the server's mark has changed since the session began, and the session has ended.
	status = `
SELECT pg_is_in_recovery(), coalesce(mark, ''), CASE WHEN same THEN pg_xact_status($1::text::xid8) END` + fromMark

	// terminate ends the session of a transaction that is still in progress, unless it may be waiting for the synchronous standby: ending it would end
	// the wait, and others would see a transaction that no standby has. A session that waits for a lock, or for its client, has not reached that point
	// of COMMIT.
	terminate = `
SELECT count(pg_terminate_backend(a.pid))` + fromMark + ` JOIN pg_stat_activity a ON same
WHERE a.backend_xid::text = mod($1::text::numeric, 4294967296)::text AND a.pid <> pg_backend_pid()
	AND (current_setting('synchronous_standby_names') = '' OR a.state LIKE 'idle in transaction%' OR a.wait_event_type = 'Lock'
		OR a.wait_event = 'ClientRead')`

	fromMark = `
FROM (SELECT mark, coalesce(mark = $2::text, false)
		OR EXISTS (SELECT FROM pg_stat_get_activity($3::int) WHERE backend_start = $4::timestamptz) AS same
	FROM (SELECT ` + pgsql.Mark + ` AS mark) now) server`
)

// inquiry finds out on another connection how a transaction ended whose answer to COMMIT was lost.
type inquiry struct {
	tx    *transaction
	db    *bun.DB
	sinks []Sink
	// Only this transaction can have written these events and rows.
	events []event.Envelope
	rows   []unit.Proof
}

// resolve asks until there is an outcome. lost is why the answer was lost.
//
// As long as the server has not crashed, pg_xact_status of the transaction's id is the answer. After a crash the server gives ids that did not
// reach the disk to other transactions. Then "committed", or a session in progress, may belong to another transaction. So after a crash only a row
// counts that nobody else can have written.
//
// If the transaction is in progress, its backend either is still committing, or has not noticed that its client is gone. The latter would keep all
// its locks until TCP gives up, so the backend is terminated. A backend that is already committing finishes its COMMIT first.
func (q *inquiry) resolve(ctx context.Context, lost error) (fate, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), q.tx.limit)
	defer cancel()
	var reason error // why there is no outcome yet
	for attempt := 1; ; attempt++ {
		became, err := q.inquire(ctx)
		switch became {
		case isCommitted:
			return became, nil
		case isAborted:
			return became, fmt.Errorf("uow: commit: %w: %w", ErrConnectionLost, lost)
		case isUnknown:
			return became, q.unknown(errors.Join(lost, err))
		case isOpen:
		}
		if reason == nil || ctx.Err() == nil { // the error of an earlier attempt says more than the end of the time
			reason = err
		}
		if (retry.Policy{Delay: 10 * time.Millisecond, MaxDelay: time.Second}).Wait(ctx, attempt) != nil {
			return isUnknown, q.unknown(errors.Join(lost, reason))
		}
	}
}

// fate is how a transaction ended.
type fate int

const (
	isOpen fate = iota // ask again
	isCommitted
	isAborted
	isUnknown // nobody can find out, now or later
)

// codeFutureXID is the error of status on a server that has not given out the id yet, so it is not the server of the transaction.
const codeFutureXID = "22023"

// inquire asks once. All its questions go to one session, because other connections of the pool may lead to another server.
func (q *inquiry) inquire(ctx context.Context) (fate, error) {
	conn, err := q.db.Conn(ctx)
	if err != nil {
		return isOpen, err
	}
	defer func() { _ = conn.Close() }()
	recovering, mark, outcome, err := q.status(ctx, conn)
	switch {
	case err != nil && pgerr.Code(err) != codeFutureXID, recovering: // no answer, or that of a standby
		// A standby may lag behind the server of the transaction, so its answer proves nothing.
		return isOpen, err
	case outcome == "committed":
		return confirmed(ctx, conn)
	case outcome == "aborted":
		return isAborted, nil
	case outcome != "": // in progress
		// The end of the session makes the outcome certain. The next attempt reads it.
		return isOpen, q.terminate(ctx, conn)
	}
	found, later, notFound := q.found(ctx, conn)
	switch {
	case found:
		return confirmed(ctx, conn)
	case later:
		return isOpen, notFound
	}
	return isUnknown, errors.Join(fmt.Errorf("%w (mark %q, and %q when the session began)", errForgotten, mark, q.tx.session.Mark), err, notFound)
}

// errForgotten explains why neither the status of a transaction nor its rows show how it ended.
var errForgotten = errors.New("the server has recovered from a crash since, is another one, or has forgotten the transaction, " +
	"and no row was found that only this unit can have written")

// status asks for the status of the transaction. outcome is "" if the server does not know it.
func (q *inquiry) status(ctx context.Context, conn bun.Conn) (recovering bool, mark, outcome string, err error) {
	var told sql.NullString
	err = conn.Conn.QueryRowContext(ctx, q.question(status), q.subject()...).Scan(&recovering, &mark, &told)
	return recovering, mark, told.String, err
}

// terminate ends the session that still runs the transaction. It does nothing to a session that may be
// waiting for the standby.
func (q *inquiry) terminate(ctx context.Context, conn bun.Conn) error {
	var ended int
	return conn.Conn.QueryRowContext(ctx, q.question(terminate), q.subject()...).Scan(&ended)
}

// question returns the statement in the form that this server understands.
func (q *inquiry) question(statement string) string {
	if q.tx.session.Timeline == "" {
		return strings.Replace(statement, pgsql.Mark, pgsql.MarkAlone, 1)
	}
	return statement
}

// subject are the arguments of status and terminate.
func (q *inquiry) subject() []any {
	s := &q.tx.session
	return []any{q.tx.xid, s.Mark, s.PID, s.Start}
}

// found looks for a row of the unit. later: a query failed for a reason that may pass, so it is worth asking again.
func (q *inquiry) found(ctx context.Context, conn bun.Conn) (found, later bool, err error) {
	looks := make([]func() (bool, error), 0, len(q.rows)+len(q.sinks))
	for _, find := range q.rows {
		looks = append(looks, func() (bool, error) { return find(ctx, conn, q.tx.xid) })
	}
	if len(q.events) > 0 {
		for _, s := range q.sinks {
			if sink, ok := s.(FindSink); ok {
				looks = append(looks, func() (bool, error) { return sink.Find(ctx, conn, q.events) })
			}
		}
	}
	for _, look := range looks {
		is, failure := look()
		if is {
			return true, false, nil
		}
		later = later || failure != nil && passes(failure)
		err = errors.Join(err, failure)
	}
	return false, later, err
}

// passes reports whether the error may be gone at the next attempt: it is about the connection, or the server is short of something, shuts down or
// starts, or broke off the statement in favour of another one (PostgreSQL, Appendix A). Other errors of the server, a missing table for example,
// stay.
func passes(err error) bool {
	code := pgerr.Code(err)
	return code == "" || slices.ContainsFunc([]string{"08", "40", "53", "55", "57"}, func(class string) bool { return strings.HasPrefix(code, class) })
}

// confirmed waits, as the unit's own COMMIT would have, until the synchronous standby has confirmed the transaction that was found committed.
func confirmed(ctx context.Context, conn bun.Conn) (fate, error) {
	if err := pgsql.AwaitStandby(ctx, conn); err != nil {
		return isOpen, err
	}
	return isCommitted, nil
}

// unknown has everything that a person needs to look the transaction up in the server's log.
func (q *inquiry) unknown(err error) error {
	s := &q.tx.session
	return &CommitUnknownError{XID: q.tx.xid, PID: s.PID, Start: s.Start, Timeline: s.Timeline, Err: err}
}
