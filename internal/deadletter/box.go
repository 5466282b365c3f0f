package deadletter

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// SQL are the statements of a box. In all of them the table of the dead letters is called d.
//
// The first %s of a statement stands for the conditions on d. A second one, as in List and Pick, stands for the LIMIT.
type SQL struct {
	// Consumer and ID are the columns with the consumer and the id of a letter. Consumer is "" if the box has no consumers.
	Consumer, ID string

	// List reads letters without their payloads, the oldest first: conditions, bound.
	List string
	// After selects the letters that come after a given one in the order of List: arguments of [Box.Place].
	After string
	// Show reads letters with their payloads: conditions.
	Show string
	// Count counts letters: conditions.
	Count string
	// Errors reads the columns of an operator.DeadError, the latest first: bound.
	Errors string

	// Pick chooses a batch in the order in which letters have to move: conditions, bound. [Batch.Add] takes its rows.
	Pick string
	// Beyond selects the letters that come after a batch in the order of Pick: arguments of [Batch.Place].
	Beyond string
	// Lock keeps the keys of a batch from being changed by others: arguments of [Batch.Locks].
	Lock string
	// Edit stores another payload: arguments of [Batch.Refs], then the payload.
	Edit string
	// Replay and Discard move letters, enter each in the audit and return how many they moved. Expire is Discard with an entry
	// for each group. Arguments: actor, action, reason, then those of [Batch.Refs].
	Replay, Discard, Expire string
	// Settle follows a move and updates the keys of the letters, because another row may be the first of a key now: arguments of [Batch.Keys].
	Settle string
}

// Batch collects the letters of one transaction as arrays, the arguments of the box's statements.
type Batch interface {
	// Add takes a row of [SQL.Pick].
	Add(scan pgsql.Scan) error
	// Len is how many letters it has.
	Len() int
	// Place is where its last letter stands in the order of Pick.
	Place() []any
	// Locks, Refs and Keys are the arguments of [SQL.Lock], of the moves and of [SQL.Settle].
	Locks() []any
	Refs() []any
	Keys() []any
}

// Box lists, replays and discards the dead letters of a box. L is a letter. It is safe for concurrent use.
type Box[L any] struct {
	// Name is "outbox" or "inbox". Errors begin with it.
	Name string
	// SQL are its statements.
	SQL SQL
	// Run runs them, planned anew each time: the best index depends on the filter, and tables that are nearly empty most of the time
	// are full when operators look at them.
	Run *pgsql.Runner
	// DB returns the handle for reads.
	DB func(context.Context) bun.IDB
	// Within runs fn in a READ COMMITTED transaction: a statement behind the lock has to see what was committed before the lock was given. If fn has
	// moved some, it wakes the handlers of the letters after the commit.
	Within func(ctx context.Context, fn func(ctx context.Context, tx bun.IDB) (moved bool, err error)) error
	// Scan reads a row of List or Show.
	Scan func(pgsql.Scan, *L) error
	// Place are the arguments of [SQL.After] for a letter.
	Place func(*L) []any
	// NewBatch returns an empty batch.
	NewBatch func() Batch
	// BatchSize is how many letters a transaction moves by default.
	BatchSize int
	// MaxPayload limits an edited payload, in bytes. -1: no limit.
	MaxPayload int
	// Log gets a warning when letters were expired.
	Log *slog.Logger
}

// One names a single dead letter.
type One struct {
	// Name is its name in errors.
	Name string
	// Where selects it.
	Where *pgsql.Where
	// Invalid is the error for a name that no letter can have, nil for a valid name.
	Invalid error
}

func (b *Box[L]) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s: %w", b.Name, what, pgerr.Explain(err))
}
