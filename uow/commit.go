package uow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/unit"
)

// finish flushes and commits. Afterwards nothing can fail any more.
func (u *level) finish(ctx context.Context) error {
	r := u.root
	if r.flushed == nil && len(r.manager.handlers) > 0 {
		if err := u.handle(ctx); err != nil {
			return err
		}
	}
	// The unit is closed before the events are collected, so no goroutine can add an event that nobody stores.
	entries, err := r.seal(u)
	if err != nil {
		return err
	}
	if err := r.tx.failure(); err != nil {
		return fmt.Errorf("uow: before COMMIT the transaction was found failed: %w", err)
	}
	var events []event.Envelope
	var aggregates []event.Aggregate
	if f := r.flushed; f != nil {
		events, aggregates, err = f.events, f.aggregates, f.unchanged()
	} else {
		events, aggregates, err = r.collect(entries)
	}
	// From here on the sinks get the events, so an aggregate that changes afterwards fails the unit.
	if err != nil {
		return err
	}
	if err := r.flushAndCommit(ctx, u, events); err != nil {
		return err
	}
	// Only a committed unit gives a token. A token of events that do not exist would be waited for in vain.
	if r.token != nil && len(events) > 0 {
		*r.token = makeToken(events)
	}
	r.committed(ctx, u.hooks, aggregates, events)
	return nil
}

// collect makes the envelopes of all events of the unit, in order.
func (r *root) collect(entries []entry) (events []event.Envelope, aggregates []event.Aggregate, err error) {
	var seen staleSet
	for _, e := range entries {
		if e.aggregate == nil {
			events = append(events, e.envelope)
			r.name(e)
			continue
		}
		if len(entries) > 1 { // one aggregate may be tracked and saved, and its events must go out once
			if seen.has(e.aggregate) {
				continue
			}
			seen.mark(e.aggregate)
		}
		aggregates = append(aggregates, e.aggregate)
		version, recorded := e.aggregate.AggregateVersion(), e.aggregate.RecordedEvents()
		if err := r.check(e.aggregate, len(recorded)); err != nil {
			return nil, nil, err
		}
		for i, rec := range recorded {
			env, err := r.manager.maker.Recorded(e.ctx, e.aggregate, version+int64(i)+1, rec)
			if err != nil {
				return nil, nil, fmt.Errorf("uow: flush: %w", err)
			}
			events = append(events, env)
		}
	}
	return events, aggregates, envelope.Contiguous(events)
}

// name remembers the id of an event if the caller chose it.
func (r *root) name(e entry) {
	if !e.named {
		return
	}
	if r.named == nil {
		r.named = map[string]struct{}{}
	}
	r.named[e.envelope.ID] = struct{}{}
}

// check returns an error if the unit cannot emit the recorded events of the aggregate: it is stale, or has recorded events since it was saved.
func (r *root) check(a event.Aggregate, recorded int) error {
	if r.stale.has(a) {
		return fmt.Errorf("%w: %s", ErrStale, nameOf(a))
	}
	if s, ok := r.saved[a]; ok && s.events != recorded {
		return fmt.Errorf("uow: %s %s recorded events after it was saved: save it last", a.AggregateType(), a.AggregateID())
	}
	return nil
}

// flushAndCommit passes the events to the sinks and commits, in one round trip if possible.
func (r *root) flushAndCommit(ctx context.Context, u *level, events []event.Envelope) error {
	f := &flush{tx: &r.tx, sinks: r.manager.sinks}
	if r.flushed == nil {
		if err := f.give(ctx, events); err != nil {
			return err
		}
	}
	f.last(&u.last)
	together := f.together()
	if !together {
		if err := f.settle(ctx); err != nil {
			return err
		}
	}
	// The last moment at which the caller can change its mind.
	if err := interrupted(ctx); err != nil {
		return fmt.Errorf("uow: before COMMIT: %w", err)
	}
	if !together {
		return r.outcome(ctx, r.tx.commit(), events, u.proofs)
	}
	sent, err := r.tx.commitWith(ctx, &f.queue.Batch)
	if !sent {
		return err
	}
	return r.outcome(ctx, err, events, u.proofs)
}

// commit sends COMMIT. The error is the server's answer, or why its answer was lost.
func (t *transaction) commit() error {
	t.closed = true
	t.committing(true)
	return t.limited(t.bun.Commit)
}

// commitWith sends the statements and COMMIT. sent false: a statement failed, and the transaction waits for a rollback.
//
// The caller can still cancel, because the statements may wait for locks of others, unless the batch holds nothing but COMMIT. A cancel closes the
// connection, and nobody knows how far the server has come: an [inquiry] finds out, and ends the session if it waits for a lock.
func (t *transaction) commitWith(ctx context.Context, batch *pgsql.Batch) (sent bool, err error) {
	if batch.Len() == 0 {
		ctx = context.WithoutCancel(ctx)
	}
	batch.Within = t.limit
	t.committing(true)
	open, err := pgsql.SendCommit(ctx, t.conn, batch)
	if ended := errors.Is(err, ErrTransactionEnded); ended || open {
		t.committing(false)
		if !ended {
			err = fmt.Errorf("uow: flush: %w", pgerr.Explain(err))
		}
		return false, err
	}
	t.closed = true
	_ = t.bun.Commit() // sends nothing, but database/sql has to learn that the transaction is over
	return true, err
}

// committing records that COMMIT is on its way. Meanwhile, closing the connection sends the server no cancel request.
func (t *transaction) committing(is bool) {
	t.onPgx(func(_ *pgx.Conn, trouble *pgsql.Trouble) { trouble.Committing(is) })
}

// answered takes the error of COMMIT and gives the connection back. The error is [pgsql.ErrUnconfirmed] if the synchronous standby has not confirmed
// the COMMIT.
func (t *transaction) answered(err error) error {
	if err == nil || refused(err) { // otherwise the connection is not used again
		t.onPgx(func(_ *pgx.Conn, trouble *pgsql.Trouble) {
			if err == nil && trouble.Unconfirmed() {
				err = pgsql.ErrUnconfirmed
			}
			trouble.Committing(false)
		})
	}
	t.release()
	return err
}

// outcome ends a unit after COMMIT. err is what the server answered, or why its answer was lost.
func (r *root) outcome(ctx context.Context, err error, events []event.Envelope, rows []unit.Proof) error {
	// The connection goes back before anything is asked: the pool may have no other one, and others may be asking as well.
	err = r.tx.answered(err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrTxCommitRollback):
		r.abandon()
		return fmt.Errorf("uow: at COMMIT the transaction was found failed: an error was not returned: %w", err)
	case refused(err) || errors.Is(err, sql.ErrTxDone):
		// No answer from here on: whether the transaction was committed has to be found out.
		r.abandon()
		return fmt.Errorf("uow: commit: %w", err)
	case r.tx.xid == "":
		// The transaction wrote nothing, so it does not matter whether it was committed.
		return nil
	}
	r.manager.log.WarnContext(ctx, "oncebox: the connection broke during COMMIT; the server is asked whether the transaction was "+
		"committed", "xid", r.tx.xid, "error", err)
	q := &inquiry{tx: &r.tx, db: r.manager.db, sinks: r.manager.sinks, events: r.own(events), rows: rows}
	became, err := q.resolve(ctx, err)
	if became == isAborted {
		r.abandon()
	}
	return err
}

// own returns the events whose ids were made for this try. Rows with the other ids may be those of other units.
func (r *root) own(events []event.Envelope) (own []event.Envelope) {
	for i := range events {
		if _, named := r.named[events[i].ID]; !named && events[i].Delivery.DedupKey == "" {
			own = append(own, events[i])
		}
	}
	return own
}

// committed clears the events of the aggregates, and calls the sinks and the hooks of AfterCommit. The data is committed, so a panic here is logged
// and not returned.
func (r *root) committed(ctx context.Context, hooks []func(context.Context), aggregates []event.Aggregate, events []event.Envelope) {
	if len(hooks)+len(aggregates)+len(events) == 0 {
		return
	}
	ctx = context.WithoutCancel(ctx)
	for _, a := range aggregates {
		r.survive(ctx, "ClearEvents", a.ClearEvents)
		if s, ok := r.saved[a]; ok {
			s.confirm()
		}
		// A sink is called before the hooks, so an outbox wakes its relay before slow hooks run.
	}
	for _, s := range r.manager.sinks {
		if c, ok := s.(CommitSink); ok && len(events) > 0 {
			r.survive(ctx, "Committed", func() { c.Committed(ctx, events) })
		}
	}
	for _, hook := range hooks {
		r.survive(ctx, "AfterCommit", func() { hook(ctx) })
	}
}

// survive runs a function that can no longer undo anything: its panic must not look like a unit that failed.
func (r *root) survive(ctx context.Context, what string, fn func()) {
	defer func() {
		if p := recover(); p != nil {
			r.manager.log.ErrorContext(ctx, "oncebox: a function that runs after COMMIT panicked; the unit of work stays committed",
				"in", what, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	fn()
}
