// Package store has the statements of the inbox on its tables, and what they take and return. It knows no handler: package inbox decides.
package store

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/uow"
)

// AnswerTimeout is how long each statement of the inbox may take, besides waiting for locks. A host that vanishes never answers, and
// neither does a proxy that takes the statement and passes nothing on. Then the connection is closed, and the message is tried again on
// another connection.
const AnswerTimeout = 15 * time.Second

// Handle is how the packages of the inbox reach its tables.
type Handle struct {
	Units *uow.Manager
	// SQL runs statements that have to answer in time. Patient runs statements that may take long: cleaning, and waiting for handlers to end.
	SQL, Patient *pgsql.Runner
	Log          *slog.Logger
	// Owner is this process to others that work on parked messages.
	Owner string
	// ParkedLease, LeaseTTL and LockTimeout are those of inbox.Config.
	ParkedLease, LeaseTTL, LockTimeout time.Duration
	// Wake has this process look at parked messages at once.
	Wake func()

	answer time.Duration
}

// AnswerWithin sets how long each statement of SQL may take, besides waiting for locks.
func (h *Handle) AnswerWithin(d time.Duration) {
	h.answer = d
	h.SQL = h.Patient.Within(h.patience())
}

// DB is the unit of ctx, or else the pool.
func (h *Handle) DB(ctx context.Context) bun.IDB { return h.Units.DB(ctx) }

// AdHoc runs the statements of operators. They are planned anew each time, because the best index depends on the consumer or tenant, and because
// tables that are nearly empty most of the time are full just then.
func (h *Handle) AdHoc() *pgsql.Runner { return h.SQL.AdHoc() }

// patience is the answer's time plus the time for which a statement may wait for a lock.
func (h *Handle) patience() time.Duration { return h.answer + h.LockTimeout }

// Bounded is for statements that SQL does not run. They get the same time.
func (h *Handle) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, h.patience(), &silentError{h.patience()})
}

// LockMillis is LockTimeout in milliseconds, at least 1: PostgreSQL takes 0 for no limit.
func (h *Handle) LockMillis() int64 { return max(h.LockTimeout.Milliseconds(), 1) }

// silentError is the cause with which a statement is cancelled that got no answer. It makes its text only when that is read.
type silentError struct{ timeout time.Duration }

func (e *silentError) Error() string {
	return fmt.Sprintf("inbox: the database has not answered for %s", e.timeout)
}
