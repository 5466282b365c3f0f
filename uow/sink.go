package uow

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
)

// Sink takes the events of a unit within its transaction. It is called once per unit, as the last thing before COMMIT,
// in the order in which the sinks were given.
type Sink interface {
	// Flush stores evs through tx. It may fill in Sequence. To an event that it does not store, because it repeats an earlier
	// one ([event.WithDedupKey]), it gives the ID of that one: the sinks behind do not get it. An error rolls the unit back.
	Flush(ctx context.Context, tx bun.IDB, evs []event.Envelope) error
}

// CommitSink is a [Sink] that wants to know of the COMMIT, to wake up what waits for the events.
type CommitSink interface {
	Sink
	// Committed is called after COMMIT with the events as the sinks have left them, if there are any. ctx is not cancelled with that of
	// the caller. It cannot fail the unit any more: a panic is logged. It is not called where the outcome of COMMIT is unknown.
	Committed(ctx context.Context, evs []event.Envelope)
}

// probeSink is a [Sink] whose statement reports the id of the transaction on the way. It spares the unit a statement:
// what has just returned rows from the server proves that the transaction is alive, and the id is what a lost answer
// to COMMIT is resolved with.
type probeSink interface {
	Sink
	FlushProbe(ctx context.Context, tx bun.IDB, evs []event.Envelope) (xid string, err error)
}

// batchSink is a [Sink] whose statements can leave in one round trip with COMMIT. The unit asks for them where the
// connection allows it (config.OpenDB), where it knows the id of the transaction already ([Unit.Save]), so that a lost
// answer can be resolved, and where this is its only sink.
type batchSink interface {
	Sink
	// FlushBatch adds the statements that store evs to b. A statement that stores less than it should has to fail: nobody
	// looks at its result before COMMIT. tx may be used for what has to be known before.
	FlushBatch(ctx context.Context, tx bun.IDB, b *pgx.Batch, evs []event.Envelope) error
}

// FindSink is a [Sink] that can find what it stored. A unit asks where the answer to COMMIT was lost and the server has crashed
// since, or another one has taken over: then a row proves more than the id of a transaction.
type FindSink interface {
	Sink
	// Find tells whether one of evs is in the database, wherever it has got meanwhile. Each was given to Flush, has an id that
	// nobody else has used, and has the Sequence that Flush gave it, or 0 where the answer was lost. It must not search a whole
	// table: false if it cannot be found fast.
	Find(ctx context.Context, db bun.IDB, evs []event.Envelope) (bool, error)
}
