package uow

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/unit"
)

// Sink takes the events of a unit within its transaction. It is called once per unit, as the last thing before COMMIT,
// in the order in which the sinks were given.
type Sink interface {
	// Flush stores evs through tx. It may fill in Sequence. If it does not store an event, because the event repeats an earlier one
	// ([event.WithDedupKey]), it sets the ID to that of the earlier event, and the sinks after it do not get the event. An error rolls the unit back.
	Flush(ctx context.Context, tx bun.IDB, evs []event.Envelope) error
}

// CommitSink is a [Sink] that is called after COMMIT, for example to wake up a reader of the events.
type CommitSink interface {
	Sink
	// Committed is called after COMMIT with the events as the sinks have left them, if there are any. ctx is not cancelled with that of
	// the caller. It cannot fail the unit any more: a panic is logged. It is not called where the outcome of COMMIT is unknown.
	Committed(ctx context.Context, evs []event.Envelope)
}

// FindSink is a [Sink] that can find the events that it stored. A unit calls Find if the answer to COMMIT was lost and the server has crashed
// since, or another server has taken over: then the id of the transaction proves nothing, and a row does.
type FindSink interface {
	Sink
	// Find reports whether one of evs is in the database, also in a table to which it was moved meanwhile. Each event was passed to Flush, has an id
	// that no other unit has used, and has the Sequence that Flush set, or 0 if the answer was lost. Find must not search a whole table: it returns
	// false if it cannot find the event fast.
	Find(ctx context.Context, db bun.IDB, evs []event.Envelope) (bool, error)
}

// flush is the end of the work of a unit: its events go to the sinks, and its last statements to the server.
type flush struct {
	tx    *transaction
	sinks []Sink
	// queue are the statements that have not been sent.
	queue unit.Queue
	// looked: the transaction was found to be still the unit's own, and only statements of oncebox were sent since.
	looked bool
	// alive: the latest of these statements was answered, so the transaction has not failed.
	alive bool
	// foreign: a sink has sent statements that are not oncebox's.
	foreign bool
}

// give passes the events to the sinks, one after the other.
func (f *flush) give(ctx context.Context, events []event.Envelope) error {
	if len(events) > 0 && len(f.sinks) == 0 {
		return noSink(events[0].Type)
	}
	for i, s := range f.sinks {
		if len(events) == 0 {
			break
		}
		var ids []string
		if i+1 < len(f.sinks) {
			ids = envelope.IDs(events)
		}
		if err := f.giveTo(ctx, s, events); err != nil {
			return fmt.Errorf("uow: flush: %w", err)
		}
		// The last sink's statements stay in the queue, so that they can leave together with COMMIT.
		if ids == nil {
			break
		}
		if err := f.send(ctx); err != nil { // the next sink is given events with their numbers
			return err
		}
		events = envelope.WithoutRepeats(events, ids)
	}
	return nil
}

// giveTo queues the statements of oncebox's own sinks. A foreign sink sends its own, so after it nothing is
// known about the transaction.
func (f *flush) giveTo(ctx context.Context, s Sink, events []event.Envelope) error {
	if err := f.look(ctx); err != nil {
		return err
	}
	if own, ok := s.(unit.Sink); ok {
		err := own.Enqueue(ctx, f.tx.bun, &f.queue, events)
		f.identify()
		return err
	}
	f.looked, f.alive, f.foreign = false, false, true
	return s.Flush(ctx, f.tx.bun, events)
}

// look returns an error if the transaction is not the unit's own any more. An exact connection refuses such statements itself; otherwise look asks
// the server.
func (f *flush) look(ctx context.Context) error {
	if f.looked || f.tx.exact {
		return nil
	}
	err := f.tx.probed(ctx)
	f.looked = err == nil
	return err
}

// identify takes the id of the transaction from a statement that has returned it.
func (f *flush) identify() {
	if f.queue.XID == "" {
		return
	}
	f.alive = true
	f.tx.identified(f.queue.XID)
}

// last adds the statements that go last.
func (f *flush) last(statements *pgsql.Batch) { f.queue.Append(statements) }

// together reports whether the queue can leave together with COMMIT.
//
// Then a lost answer may be that of the INSERT or that of COMMIT. In both cases the id of the transaction shows the outcome, so the id has to be
// known before.
//
// COMMIT alone needs no statement before it that proves that the transaction is alive: a pipeline checks the answer to COMMIT.
func (f *flush) together() bool {
	return f.tx.xid != "" && !f.foreign && pgsql.CanPipeline(f.tx.conn)
}

// send sends the queue.
func (f *flush) send(ctx context.Context) error {
	if f.queue.Len() == 0 {
		return nil
	}
	err := f.look(ctx)
	if err == nil {
		err = pgsql.Send(ctx, f.tx.conn, f.tx.bun, &f.queue.Batch)
	}
	if err != nil {
		return fmt.Errorf("uow: flush: %w", pgerr.Explain(err))
	}
	f.queue.Batch, f.alive = pgsql.Batch{}, true
	f.identify()
	return nil
}

// settle sends the queue without COMMIT. If it returns nil, the transaction is alive, it is the transaction that the unit began, and its id is
// known. Only then may COMMIT follow.
func (f *flush) settle(ctx context.Context) error {
	if err := f.send(ctx); err != nil {
		return err
	}
	if err := f.tx.ended(); err != nil {
		return fmt.Errorf("uow: before COMMIT: %w", err)
	}
	if f.tx.xid != "" && (f.alive || f.tx.exact && f.tx.alive()) {
		return nil
	}
	return f.tx.probed(ctx)
}

// noSink names the first event, by which the code that emitted it is found.
func noSink(first string) error { return fmt.Errorf("%w: the first is %s", ErrNoSink, first) }
