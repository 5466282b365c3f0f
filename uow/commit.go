package uow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// finish flushes and commits. Afterwards nothing can fail any more.
func (u *level) finish(ctx context.Context) error {
	r := u.root
	if r.flushed == nil {
		if err := r.handle(ctx, u); err != nil {
			return err
		}
	}
	entries, err := r.seal(u)
	if err != nil {
		return err
	}
	if err := r.failure(); err != nil {
		return fmt.Errorf("uow: before COMMIT the transaction was found failed: %w", err)
	}
	var events []event.Envelope
	var aggregates []event.Aggregate
	if f := r.flushed; f != nil {
		events, aggregates, err = f.events, f.aggregates, f.unchanged()
	} else {
		events, aggregates, err = r.collect(entries)
	}
	if err != nil {
		return err
	}
	if err := r.flushAndCommit(ctx, u, events); err != nil {
		return err
	}
	if r.token != nil && len(events) > 0 {
		*r.token = makeToken(events)
	}
	r.committed(context.WithoutCancel(ctx), u.hooks, aggregates, events)
	return nil
}

// flushAndCommit gives the events to the sinks and commits, in one round trip if possible.
func (r *root) flushAndCommit(ctx context.Context, u *level, events []event.Envelope) error {
	f := &flush{root: r}
	if r.flushed == nil {
		if err := f.give(ctx, events); err != nil {
			return err
		}
	}
	f.last(u.last)
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
	p := proofs{events: events, rows: u.proofs}
	if together {
		return r.commitWith(ctx, &f.queue.Batch, p)
	}
	return r.commit(ctx, p)
}

// collect makes the envelopes of all events of the unit, in order.
func (r *root) collect(entries []entry) (events []event.Envelope, aggregates []event.Aggregate, err error) {
	seen := make(staleSet, len(entries))
	for _, e := range entries {
		if e.aggregate == nil {
			events = append(events, e.envelope)
			r.name(e)
			continue
		}
		if _, twice := seen[e.aggregate]; twice {
			continue
		}
		seen[e.aggregate] = struct{}{}
		aggregates = append(aggregates, e.aggregate)
		if err := r.check(e); err != nil {
			return nil, nil, err
		}
		version, recorded := e.aggregate.AggregateVersion(), e.aggregate.RecordedEvents()
		for i, rec := range recorded {
			env, err := r.manager.maker.Recorded(e.ctx, e.aggregate, version+int64(i)+1, rec)
			if err != nil {
				return nil, nil, fmt.Errorf("uow: flush: %w", err)
			}
			events = append(events, env)
		}
	}
	return events, aggregates, contiguous(events)
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

// check returns an error if the unit cannot emit the events of the aggregate: it is stale, or has recorded events since it was saved.
func (r *root) check(e entry) error {
	a := e.aggregate
	if a == nil {
		return nil
	}
	if _, stale := r.stale[a]; stale {
		return fmt.Errorf("%w: %s %s", ErrStale, a.AggregateType(), a.AggregateID())
	}
	if s, ok := r.saved[a]; ok && s.events != len(a.RecordedEvents()) {
		return fmt.Errorf("uow: %s %s recorded events after it was saved: save it last", a.AggregateType(), a.AggregateID())
	}
	return nil
}

type aggregateKey struct{ tenant, kind, id string }

// contiguous returns an error unless the versions of an aggregate's events follow one another. If they do not, two instances of the aggregate were
// tracked, or versions that were set by hand are wrong, and consumers would miss an event or confuse two.
func contiguous(events []event.Envelope) error {
	if len(events) < 2 {
		return nil
	}
	latest := map[aggregateKey]int64{}
	for i := range events {
		e := &events[i]
		if e.AggregateVersion == 0 || e.AggregateID == "" {
			continue
		}
		key := aggregateKey{e.TenantID, e.AggregateType, e.AggregateID}
		// The events of an aggregate without stored versions begin at 1 each time.
		if before := latest[key]; before > 0 && e.AggregateVersion > 1 && e.AggregateVersion != before+1 {
			return fmt.Errorf("uow: flush: %s %s: the event %s leads to version %d, and the one before it in this unit to %d: "+
				"is the aggregate tracked as two instances?", e.AggregateType, e.AggregateID, e.Type, e.AggregateVersion, before)
		}
		latest[key] = e.AggregateVersion
	}
	return nil
}

// commit sends COMMIT and finds out its outcome.
func (r *root) commit(ctx context.Context, p proofs) error {
	r.closed = true
	r.committing(true)
	timer := time.AfterFunc(r.manager.cfg.CommitTimeout, r.cancel)
	err := r.tx.Commit()
	timer.Stop()
	return r.outcome(ctx, err, p)
}

// commitWith sends the statements and COMMIT.
//
// The caller can still cancel, because the statements may wait for locks of others, unless the batch holds nothing but COMMIT. A cancel closes the
// connection, and nobody knows how far the server has come: resolve finds out, and ends the session if it waits for a lock.
func (r *root) commitWith(ctx context.Context, batch *pgx.Batch, p proofs) error {
	if batch.Len() == 0 {
		ctx = context.WithoutCancel(ctx)
	}
	timed, cancel := context.WithTimeout(ctx, r.manager.cfg.CommitTimeout)
	r.committing(true)
	open, err := pgsql.SendCommit(timed, r.conn, batch)
	cancel()
	if errors.Is(err, ErrTransactionEnded) {
		r.committing(false)
		return err
	}
	if open {
		r.committing(false)
		return fmt.Errorf("uow: flush: %w", pgerr.Explain(err))
	}
	r.closed = true
	_ = r.tx.Commit() // sends nothing, but database/sql has to learn that the transaction is over
	return r.outcome(ctx, err, p)
}

// committing records that COMMIT is on its way. Meanwhile, closing the connection sends the server no cancel request.
func (r *root) committing(is bool) {
	r.onPgx(func(_ *pgx.Conn, t *pgsql.Trouble) { t.Committing(is) })
}

// outcome ends a unit after COMMIT. err is what the server answered, or why its answer was lost.
func (r *root) outcome(ctx context.Context, err error, p proofs) error {
	if err == nil || refused(err) { // otherwise the connection is not used again
		r.onPgx(func(_ *pgx.Conn, t *pgsql.Trouble) {
			if err == nil && t.Unconfirmed() {
				err = pgsql.ErrUnconfirmed
			}
			t.Committing(false)
		})
	}
	// Before anything is asked: the pool may have no other connection, and others may be asking as well.
	r.release()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrTxCommitRollback):
		r.abandon()
		return fmt.Errorf("uow: at COMMIT the transaction was found failed: an error was not returned: %w", err)
	case refused(err) || errors.Is(err, sql.ErrTxDone):
		r.abandon()
		return fmt.Errorf("uow: commit: %w", err)
	case r.xid == "":
		// The transaction wrote nothing, so it does not matter whether it was committed.
		return nil
	}
	r.manager.log.WarnContext(ctx, "oncebox: the answer to COMMIT was lost, asking the server", "xid", r.xid, "error", err)
	return r.resolve(context.WithoutCancel(ctx), err, p)
}

// committed clears the events of the aggregates, and calls the sinks and the hooks of AfterCommit. The data is committed, so a panic here is logged
// and not returned.
func (r *root) committed(ctx context.Context, hooks []func(context.Context), aggregates []event.Aggregate, events []event.Envelope) {
	for _, a := range aggregates {
		r.survive(ctx, "ClearEvents", a.ClearEvents)
		if s, ok := r.saved[a]; ok {
			s.confirm()
		}
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

func (r *root) survive(ctx context.Context, what string, fn func()) {
	defer func() {
		if p := recover(); p != nil {
			r.manager.log.ErrorContext(ctx, "oncebox: panic after COMMIT, the unit is committed all the same",
				"in", what, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	fn()
}
