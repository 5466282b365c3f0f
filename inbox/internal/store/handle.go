// Package store has the SQL statements of the inbox, their arguments and results. It calls no handler and decides nothing; package inbox
// does.
package store

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/uow"
)

// AnswerTimeout is how long each statement of the inbox may take, not counting the wait for locks. A host that vanishes never answers, and
// neither does a proxy that accepts the statement and does not pass it on. After this time the connection is closed, and the message is
// tried again on another one.
const AnswerTimeout = 15 * time.Second

// Handle gives the packages of the inbox access to its tables.
type Handle struct {
	Units *uow.Manager
	// SQL runs statements with a time limit, see AnswerTimeout. Patient runs statements that may take long: cleaning, and waiting for
	// handlers to end.
	SQL, Patient *pgsql.Runner
	Log          *slog.Logger
	// Owner is the id by which other processes know this one, in the tables of parked messages and reports.
	Owner string
	// Process names this process for people, in what is stored of a failure.
	Process string
	// ParkedLease, LeaseTTL and LockTimeout are those of inbox.Config.
	ParkedLease, LeaseTTL, LockTimeout time.Duration
	// PollInterval and NoHistory are those of inbox.Config.
	PollInterval time.Duration
	NoHistory    bool
	// Wake makes this process look for parked messages at once.
	Wake func()

	answer time.Duration
}

// AnswerWithin sets how long each statement of SQL may take, not counting the wait for locks.
func (h *Handle) AnswerWithin(d time.Duration) {
	h.answer = d
	h.SQL = h.Patient.Within(h.Patience())
}

// DB returns the transaction of the unit in ctx, or the pool if there is none.
func (h *Handle) DB(ctx context.Context) bun.IDB { return h.Units.DB(ctx) }

// ReadCommitted is the isolation level of all units of the inbox. Order and deduplication depend on it: a statement has to see rows that were
// committed while it waited for a lock.
func ReadCommitted() uow.Option { return uow.WithIsolation(sql.LevelReadCommitted) }

// AdHoc runs the statements of operators. They are planned anew each time: the best index depends on the consumer or tenant, and the
// tables, nearly empty most of the time, are full when operators look.
func (h *Handle) AdHoc() *pgsql.Runner { return h.SQL.AdHoc() }

// Count runs a statement that counts a try before it is made. It does nothing once ctx has ended, but the end of ctx does not interrupt the
// statement: the server may have counted a try whose answer was not awaited, and the caller could not take back what it does not know of.
func (h *Handle) Count(ctx context.Context, statement string, args []any, dest ...any) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return h.SQL.QueryRow(context.WithoutCancel(ctx), h.DB(ctx), statement, args, dest...)
}

// Patience is how long a statement may take in all: the time for the answer, plus the time for which it may wait for a lock.
func (h *Handle) Patience() time.Duration { return h.answer + h.LockTimeout }

// LockMillis is LockTimeout in milliseconds, at least 1: PostgreSQL takes 0 for no limit.
func (h *Handle) LockMillis() int64 { return max(h.LockTimeout.Milliseconds(), 1) }

// Pauses are the pauses of the loops that need an answer of the database and try again without end.
func (h *Handle) Pauses() retry.Policy {
	return retry.Policy{Delay: h.PollInterval, MaxDelay: 30 * time.Second}
}

// Wrap adds to an error what failed. It returns nil for nil.
func Wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("inbox: %s: %w", what, pgerr.Explain(err))
}

// Tables are the tables that a message passes.
type Tables struct {
	Entries  entryTable
	Attempts attemptTable
	Keys     keyTable
	Parked   parkedTable
	Heads    headTable
	Gates    gateTable
	Leases   leaseTable
	Steps    stepTable
	Cleaner  cleaner
}

// NewTables returns the tables of a handle.
func NewTables(h *Handle) Tables {
	return Tables{
		Entries: entryTable{h}, Attempts: attemptTable{h}, Keys: keyTable{h}, Parked: parkedTable{h}, Heads: headTable{h}, Gates: gateTable{h},
		Leases: leaseTable{h}, Steps: stepTable{h}, Cleaner: cleaner{h},
	}
}
