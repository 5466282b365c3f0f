package uow

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
)

// Sink takes the events of a unit within its transaction. It is called once per unit, as the last thing before COMMIT,
// in the order in which the sinks were given.
type Sink interface {
	// Flush stores evs through tx. It may fill in Sequence. An error rolls the unit back.
	Flush(ctx context.Context, tx bun.IDB, evs []event.Envelope) error
}

// CommitSink is a [Sink] that wants to know of the COMMIT, to wake up whoever waits for the events.
type CommitSink interface {
	Sink
	Committed(ctx context.Context, evs []event.Envelope)
}

// ProbeSink is a [Sink] whose statement reports the id of the transaction on the way. It spares the unit a statement:
// what has just returned rows from the server proves that the transaction is alive, and the id is what a lost answer
// to COMMIT is resolved with.
type ProbeSink interface {
	Sink
	FlushProbe(ctx context.Context, tx bun.IDB, evs []event.Envelope) (xid string, err error)
}
