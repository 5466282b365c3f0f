package uow

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/oncebox/oncebox/internal/pgsql"
)

var (
	// ErrConflict means that an aggregate was changed by somebody else since it was loaded. Do runs the function again.
	ErrConflict = errors.New("uow: the aggregate was changed by somebody else")
	// ErrExists means that a new aggregate was saved under an id that another one has already. It is an [ErrConflict] too: Do runs the
	// function again, which may load the other one then. It does so once: a function that makes a new one again would do so each time.
	ErrExists = errors.New("uow: the aggregate exists already")
	// ErrNoSink means that the unit has events and the manager no sink to take them.
	ErrNoSink = errors.New("uow: the unit has events and no sink: pass an outbox.Store to uow.New")
	// ErrCommitUnknown is matched by every [*CommitUnknownError].
	ErrCommitUnknown = errors.New("uow: the outcome of COMMIT is unknown")
	// ErrConnectionLost means that the connection broke, or the server ended the session, before COMMIT: nothing is stored. Do
	// runs the function again.
	ErrConnectionLost = errors.New("uow: the connection was lost before COMMIT, and the transaction rolled back")
	// ErrStale means that an aggregate lived through a rollback: its state and its events belong to work that was undone.
	ErrStale = errors.New("uow: the aggregate lived through a rollback: load it again inside the function")

	// ErrPool means that a pool of config.OpenDB with Config.RefusePool has refused a statement whose context carries a unit of work of that pool, or
	// is that of a handler that runs under a lease. It would be committed by itself. [Outside] lets it pass.
	ErrPool = pgsql.ErrPool

	// ErrTransactionEnded means that the transaction of a unit was ended by somebody else than the unit: its function has sent COMMIT, ROLLBACK or PREPARE
	// TRANSACTION, or has called Commit or Rollback. The events of the unit are not stored, nor is an answer or an entry that it would have
	// written. What the function has committed itself stays. It is a mistake of the function, which is not run again, whatever [RetryConfig].If says.
	ErrTransactionEnded = pgsql.ErrEnded

	errEnded        = errors.New("the unit has ended")
	errClosed       = errors.New("uow: the connection is closed: a statement was cancelled, or it broke")
	errOtherManager = errors.New("uow: the context carries a unit of another Manager on the same database, " +
		"which this one would not be part of: use one Manager per database")
	errUnended = errors.New("a unit that was begun within this one has not ended: end each Tx of Begin with Commit or Rollback before the unit " +
		"around it ends, run units one after the other and not at the same time, and let none outlive the function around it")
	errParallel = errors.New("units within one unit ran at the same time: run one after the other, and let none outlive the function around it")
)

// CommitUnknownError means that the answer to COMMIT was lost and that neither the server nor a row of the unit could tell what
// became of it. The data and the events are there, all of them, or none is. Look for the data: pg_xact_status(XID) tells only on
// the same server and timeline, and only as long as neither the server nor one of its processes has crashed since Start. A
// crash gives the ids of transactions that did not reach the disk to others. On a server with a synchronous standby, what is
// found there may still be lost by a failover as long as the standby has not confirmed it.
type CommitUnknownError struct {
	// XID is the id of the transaction.
	XID string
	// PID and Start are those of its backend, as in pg_stat_activity and in the server's log. Zero if they are not known.
	PID   int32
	Start time.Time
	// Timeline is that of the server's log (WAL) when the session began, as eight digits. "" if it is not known.
	Timeline string
	// Err is why the answer was lost, and why the server could not tell.
	Err error
}

func (e *CommitUnknownError) Error() string {
	return fmt.Sprintf("uow: the outcome of COMMIT is unknown, transaction %s (backend %d since %s, timeline %s): look for its data: %v",
		e.XID, e.PID, e.Start.UTC().Format(time.RFC3339), e.Timeline, e.Err)
}

// Unwrap returns why the answer was lost.
func (e *CommitUnknownError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, [ErrCommitUnknown]) true.
func (e *CommitUnknownError) Is(target error) bool { return target == ErrCommitUnknown }

// swallowedError is the error of a statement that the function kept to itself. Its text may quote what was sent, so it is not
// given to what logs the outcome of the unit.
type swallowedError struct{ err error }

func (e *swallowedError) Error() string {
	text := "an error was not returned: SQLSTATE " + pgsql.Code(e.err)
	if pg, ok := errors.AsType[*pgconn.PgError](e.err); ok && pg.ConstraintName != "" {
		text += ", constraint " + pg.ConstraintName
	}
	return text
}

func (e *swallowedError) Unwrap() error { return e.err }

// refused tells whether the server answered COMMIT, and answered no.
func refused(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return true
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || len(pg.Code) < 2 {
		return false
	}
	// A session that ends (FATAL) or a server that restarts (PANIC) may have written the commit record before, and so
	// may what comes from operators (class 57) or from a pooler that lost its server (class 08).
	return pg.SeverityUnlocalized == "ERROR" && pg.Code[:2] != "57" && pg.Code[:2] != "08"
}
