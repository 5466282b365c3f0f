package uow

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

var (
	// ErrConflict means that an aggregate was changed by somebody else since it was loaded. Do runs the function again.
	ErrConflict = errors.New("uow: the aggregate was changed by another transaction since it was loaded")
	// ErrExists means that a new aggregate was saved under an id that another one has already. It is an [ErrConflict] too: Do runs the function again,
	// which may then load the existing aggregate. Do repeats it only once, because a function that always makes a new aggregate would fail each time.
	ErrExists = errors.New("uow: a new aggregate has the id of an aggregate that exists already")
	// ErrNoSink means that the unit has events and the manager no sink to take them.
	ErrNoSink = errors.New("uow: the unit has events and no sink: pass an outbox.Store to uow.New")
	// ErrCommitUnknown is matched by every [*CommitUnknownError].
	ErrCommitUnknown = errors.New("uow: the outcome of COMMIT is unknown")
	// ErrConnectionLost means that the connection broke, or the server ended the session, before COMMIT: nothing is stored. Do
	// runs the function again.
	ErrConnectionLost = errors.New("uow: the connection was lost before COMMIT, and the transaction rolled back")
	// ErrStale means that an aggregate lived through a rollback: its state and its events belong to work that was undone.
	ErrStale = errors.New("uow: the aggregate was changed in a transaction that was rolled back: load it again inside the function")

	// ErrPool means that a pool of config.OpenDB with Config.RefusePool has refused a statement whose context carries a unit of work of that pool, or
	// is that of a handler that runs under a lease. It would be committed by itself. [Outside] lets it pass.
	ErrPool = pgsql.ErrPool

	// ErrTransactionEnded means that the transaction of a unit was ended by somebody else than the unit: its function has sent COMMIT, ROLLBACK or
	// PREPARE TRANSACTION, or has called Commit or Rollback. The events of the unit are not stored, nor is an answer or an entry that it would have
	// written. What the function has committed itself stays. It is a mistake of the function, which is not run again, whatever [RetryConfig].If says.
	ErrTransactionEnded = pgerr.ErrEnded

	errEnded        = errors.New("the unit has ended")
	errClosed       = errors.New("uow: the connection is closed: a statement was cancelled, or it broke")
	errOtherManager = errors.New("uow: the context carries a unit of another Manager on the same database, " +
		"which this one would not be part of: use one Manager per database")
	errUnended = errors.New("a unit that was begun within this one has not ended: end each Tx of Begin with Commit or Rollback before the unit " +
		"around it ends, run units one after the other and not at the same time, and let none outlive the function around it")
	errParallel = errors.New("units within one unit ran at the same time: run one after the other, and let none outlive the function around it")
)

// CommitUnknownError means that the answer to COMMIT was lost, and that neither the server nor a row of the unit shows how the transaction ended.
// Either all of its data and events are there, or nothing. Look for the data: pg_xact_status(XID) is reliable only on the same server and timeline,
// and only as long as neither the server nor one of its processes has crashed since Start, because a crash gives the ids of transactions that did
// not reach the disk to others. On a server with a synchronous standby, data that is found may still be lost by a failover as long as the standby
// has not confirmed it.
type CommitUnknownError struct {
	// XID is the id of the transaction.
	XID string
	// PID and Start identify its backend, as in pg_stat_activity and in the server's log. Zero if they are not known.
	PID   int32
	Start time.Time
	// Timeline is the timeline of the server's log (WAL) when the session began, as eight digits. "" if it is not known.
	Timeline string
	// Err is why the answer was lost, and why the server does not know the outcome.
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

// swallowedError is the error of a statement that the function ignored. PostgreSQL's text may quote parameters, so Error leaves it out: the error
// of the unit may be logged.
type swallowedError struct{ err error }

func (e *swallowedError) Error() string {
	text := "an error was not returned: SQLSTATE " + pgerr.Code(e.err)
	if pg, ok := errors.AsType[*pgconn.PgError](e.err); ok && pg.ConstraintName != "" {
		text += ", constraint " + pg.ConstraintName
	}
	return text
}

func (e *swallowedError) Unwrap() error { return e.err }

// refused reports whether the server answered COMMIT with a refusal.
func refused(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return true
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || len(pg.Code) < 2 {
		return false
	}
	// A session that ends (FATAL) or a server that restarts (PANIC) may have written the commit record before. The same is true of errors that
	// operators cause (class 57), and of a pooler that lost its server (class 08).
	return pg.SeverityUnlocalized == "ERROR" && pg.Code[:2] != "57" && pg.Code[:2] != "08"
}

// ConflictError says which aggregate was changed by somebody else. It matches [ErrConflict], and also [ErrExists] if the saved aggregate is a new
// one.
type ConflictError struct {
	// Type and ID are those of the aggregate.
	Type, ID string
	// Expected is the version with which the aggregate was loaded, 0 for a new one. Found is the stored version, 0 if there is no row.
	Expected, Found int64
	// Deleted says that the stored row is deleted softly: bun's usual queries do not see it.
	Deleted bool
	// Err is why Found could not be read, for example that the connection broke after the conflict was found. nil: it was read.
	Err error
}

func (e *ConflictError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("uow: %s %s: expected version %d, which is not there, and what is there could not be read: %v", e.Type, e.ID, e.Expected, e.Err)
	}
	if e.Expected == 0 && e.Deleted {
		return fmt.Sprintf("uow: %s %s exists already, with version %d, and is deleted softly: a new aggregate needs another id, and to restore "+
			"this one, load it with WhereAllWithDeleted and clear its deletion", e.Type, e.ID, e.Found)
	}
	if e.Expected == 0 {
		return fmt.Sprintf("uow: %s %s exists already, with version %d: a new aggregate needs another id, and to change this one, load it first",
			e.Type, e.ID, e.Found)
	}
	if e.Found == 0 {
		return fmt.Sprintf("uow: %s %s: expected version %d, and there is no such row: it was deleted, or it is new and something but Save has set its "+
			"version; a new aggregate has version 0", e.Type, e.ID, e.Expected)
	}
	deleted := ""
	if e.Deleted {
		deleted = ", which is deleted softly"
	}
	return fmt.Sprintf("uow: %s %s: expected version %d, found %d%s", e.Type, e.ID, e.Expected, e.Found, deleted)
}

// Unwrap returns Err.
func (e *ConflictError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, [ErrConflict]) true, and errors.Is(err, [ErrExists]) for a new aggregate.
func (e *ConflictError) Is(target error) bool {
	return target == ErrConflict || target == ErrExists && e.Expected == 0
}

// vain reports whether it is useless to run the function again: it saves a new aggregate under an id whose row is deleted softly, so it would not
// find that row the next time either.
func (e *ConflictError) vain() bool { return e.Expected == 0 && e.Deleted }

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
	if r.tx.closed {
		return nil
	}
	if err := r.tx.broken(); err != nil {
		return err
	}
	return r.victim()
}
