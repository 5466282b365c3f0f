package uow

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/unit"
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

// FindSink is a [Sink] that can find what it stored. A unit asks where the answer to COMMIT was lost and the server has crashed
// since, or another one has taken over: then a row proves more than the id of a transaction.
type FindSink interface {
	Sink
	// Find tells whether one of evs is in the database, wherever it has got meanwhile. Each was given to Flush, has an id that
	// nobody else has used, and has the Sequence that Flush gave it, or 0 where the answer was lost. It must not search a whole
	// table: false if it cannot be found fast.
	Find(ctx context.Context, db bun.IDB, evs []event.Envelope) (bool, error)
}

// flush is the end of the work of a unit: its events go to the sinks, and its last statements to the server.
type flush struct {
	root *root
	// queue are the statements that have not been sent.
	queue unit.Queue
	// looked: the transaction was found to be the unit's own, and only statements of oncebox have followed.
	looked bool
	// alive: the latest of them was answered, so the transaction has not failed.
	alive bool
	// foreign: a sink has sent statements that are not oncebox's.
	foreign bool
}

// give gives the events to the sinks, one after the other.
func (f *flush) give(ctx context.Context, events []event.Envelope) error {
	sinks := f.root.manager.sinks
	if len(events) > 0 && len(sinks) == 0 {
		return noSink(events[0].Type)
	}
	for i, s := range sinks {
		if len(events) == 0 {
			break
		}
		var ids []string
		if i+1 < len(sinks) {
			ids = idsOf(events)
		}
		if err := f.giveTo(ctx, s, events); err != nil {
			return fmt.Errorf("uow: flush: %w", err)
		}
		if ids == nil {
			break
		}
		if err := f.send(ctx); err != nil { // the next sink is given events with their numbers
			return err
		}
		events = withoutRepeats(events, ids)
	}
	return nil
}

func (f *flush) giveTo(ctx context.Context, s Sink, events []event.Envelope) error {
	r := f.root
	if err := f.look(ctx); err != nil {
		return err
	}
	if own, ok := s.(unit.Sink); ok {
		err := own.Enqueue(ctx, r.tx, &f.queue, events)
		f.identify()
		return err
	}
	f.looked, f.alive, f.foreign = false, false, true
	return s.Flush(ctx, r.tx, events)
}

// look fails if the transaction is not the unit's own any more. A connection that knows refuses the statements itself; otherwise the server is asked.
func (f *flush) look(ctx context.Context) error {
	if f.looked || f.root.exact {
		return nil
	}
	err := f.root.probed(ctx)
	f.looked = err == nil
	return err
}

// identify takes the id of the transaction from a statement that has returned it.
func (f *flush) identify() {
	if f.queue.XID == "" {
		return
	}
	f.alive = true
	f.root.identified(f.queue.XID)
}

// last adds the statements that go last.
func (f *flush) last(queries []*pgx.QueuedQuery) {
	f.queue.QueuedQueries = append(f.queue.QueuedQueries, queries...)
}

// together reports whether the queue can leave together with COMMIT.
//
// Then an answer that is lost may have been that of the INSERT or that of COMMIT. The id of the transaction tells what
// came of it either way, so it has to be known beforehand.
//
// COMMIT alone needs no statement before it that proves that the transaction is alive: a pipeline looks at what it was
// answered.
func (f *flush) together() bool {
	return f.root.xid != "" && !f.foreign && pgsql.CanPipeline(f.root.conn)
}

// send sends the queue.
func (f *flush) send(ctx context.Context) error {
	if f.queue.Len() == 0 {
		return nil
	}
	err := f.look(ctx)
	if err == nil {
		err = pgsql.Send(ctx, f.root.conn, f.root.tx, &f.queue.Batch)
	}
	if err != nil {
		return fmt.Errorf("uow: flush: %w", pgsql.Explain(err))
	}
	f.queue.Batch, f.alive = pgx.Batch{}, true
	f.identify()
	return nil
}

// settle sends the queue by itself. It ends without an error only if the transaction was found alive after all that, and to be the one that the unit
// began, and its id is known. COMMIT follows only then.
func (f *flush) settle(ctx context.Context) error {
	if err := f.send(ctx); err != nil {
		return err
	}
	r := f.root
	if err := r.ended(); err != nil {
		return fmt.Errorf("uow: before COMMIT: %w", err)
	}
	if r.xid != "" && (f.alive || r.exact && r.alive()) {
		return nil
	}
	return r.probed(ctx)
}

func noSink(first string) error { return fmt.Errorf("%w: the first is %s", ErrNoSink, first) }

func idsOf(events []event.Envelope) []string {
	ids := make([]string, len(events))
	for i := range events {
		ids[i] = events[i].ID
	}
	return ids
}

// withoutRepeats returns the events whose ids the sink has left as they were. To an event that repeats an earlier one, the sink gave the
// id of the earlier one, which has been through all sinks in its own unit.
func withoutRepeats(events []event.Envelope, ids []string) []event.Envelope {
	if slices.Equal(idsOf(events), ids) {
		return events
	}
	var fresh []event.Envelope // a new slice: the old one is what the unit has announced
	for i := range events {
		if events[i].ID == ids[i] {
			fresh = append(fresh, events[i])
		}
	}
	return fresh
}
