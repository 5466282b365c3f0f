package deadletter

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// SQL has the statements of a box. In each of them the table of dead letters is called d.
//
// The first %s of a statement is replaced by the conditions on d. A second %s, as in List and Pick, is
// replaced by the LIMIT.
type SQL struct {
	// Consumer and ID are the names of the columns with the consumer and the id of a letter. Consumer is ""
	// for a box without consumers.
	Consumer, ID string

	// List reads letters without payloads, the oldest first. It has places for conditions and LIMIT.
	List string
	// After is the condition for letters after a given one in the order of List. Its arguments come from [Box.Place].
	After string
	// Show reads letters with their payloads. It has a place for conditions.
	Show string
	// Count counts letters. It has places for conditions and LIMIT.
	Count string
	// Errors reads the columns of an operator.DeadError, the latest first. It has a place for the LIMIT.
	Errors string

	// Pick chooses a batch, in the order in which letters have to be treated. It has places for conditions and LIMIT.
	// [Batch.Add] reads its rows.
	Pick string
	// Beyond is the condition for letters after a batch in the order of Pick. Its arguments come from [Batch.Place].
	Beyond string
	// Lock locks the keys of a batch, so that no other process changes them. Its arguments come from [Batch.Locks].
	Lock string
	// Edit stores a new payload. Its arguments come from [Batch.Refs], followed by the payload.
	Edit string
	// Replay and Discard treat letters, write an audit entry for each and return their number. Expire is a
	// Discard with one audit entry for each group of letters. The arguments are actor, action and reason,
	// and those from [Batch.Refs].
	Replay, Discard, Expire string
	// Settle updates the keys of treated letters, because another row may be the first of a key now. Its
	// arguments come from [Batch.Keys].
	Settle string
}

// Batch collects the letters of one transaction as arrays, which are the arguments of the statements.
type Batch interface {
	// Add adds a row of [SQL.Pick].
	Add(scan pgsql.Scan) error
	// Len returns the number of letters.
	Len() int
	// Place returns the position of the last letter in the order of Pick.
	Place() []any
	// Locks, Refs and Keys return the arguments of [SQL.Lock], of the actions and of [SQL.Settle].
	Locks() []any
	Refs() []any
	Keys() []any
}

// Box lists, replays and discards the dead letters of a box. L is a letter. It is safe for concurrent use.
type Box[L any] struct {
	// Name is "outbox" or "inbox". Errors begin with it.
	Name string
	// SQL has the statements.
	SQL SQL
	// Run runs the statements. They are not prepared: the best index depends on the filter, and the tables, which are
	// nearly empty most of the time, are full when an operator looks at them.
	Run *pgsql.Runner
	// DB returns the handle for reading.
	DB func(context.Context) bun.IDB
	// Within runs fn in a READ COMMITTED transaction: a statement after the lock has to see what was committed before
	// the lock was granted. If fn reports moved, Within wakes up the handlers of the letters after the commit.
	Within func(ctx context.Context, fn func(ctx context.Context, tx bun.IDB) (moved bool, err error)) error
	// Scan reads a row of List or Show.
	Scan func(pgsql.Scan, *L) error
	// Place returns the arguments of [SQL.After] for a letter.
	Place func(*L) []any
	// NewBatch returns an empty batch.
	NewBatch func() Batch
	// BatchSize is the default number of letters in one transaction.
	BatchSize int
	// MaxPayload is the largest edited payload in bytes; -1: no limit.
	MaxPayload int
	// Log gets a warning when a retention has removed letters.
	Log *slog.Logger
}

// One identifies a single dead letter.
type One struct {
	// Name identifies the letter in errors.
	Name string
	// Where selects the letter.
	Where *pgsql.Where
	// Invalid is the error for an identifier that no letter can have; nil if it is valid.
	Invalid error
}

func (b *Box[L]) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s: %w", b.Name, what, pgerr.Explain(err))
}
