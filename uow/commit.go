package uow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgsql"
)

const (
	// probe proves that the transaction is alive, and asks for its id without assigning one.
	probe = `SELECT coalesce(pg_current_xact_id_if_assigned()::text, '')`
	// status: committed, aborted, in progress, or NULL when the server has forgotten it; and on which timeline.
	status = `SELECT pg_xact_status($1::text::xid8), ` + pgsql.Timeline
	// terminate ends the session of a transaction that is in progress still.
	terminate = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE backend_xid::text = mod($1::text::numeric, 4294967296)::text AND pid <> pg_backend_pid()`
	// codeFutureXID is the answer to status on a server that has not come that far: not the one we were on.
	codeFutureXID = "22023"
)

// finish flushes and commits. Afterwards nothing can fail any more.
func (u *Unit) finish(ctx context.Context) error {
	r := u.root
	if err := r.handle(ctx, u); err != nil {
		return err
	}
	entries, err := r.seal(u)
	if err != nil {
		return err
	}
	events, aggregates, err := r.collect(entries)
	if err != nil {
		return err
	}
	if err := r.flushAndCommit(ctx, events); err != nil {
		return err
	}
	r.committed(context.WithoutCancel(ctx), u.hooks, aggregates, events)
	return nil
}

// flushAndCommit hands the events to the sinks and commits, in one round trip if possible.
func (r *root) flushAndCommit(ctx context.Context, events []event.Envelope) error {
	batch, err := r.queue(ctx, events)
	if err == nil && batch == nil {
		err = r.flush(ctx, events)
	}
	if err != nil {
		return err
	}
	// The last moment at which the caller can change its mind.
	if err := interrupted(ctx); err != nil {
		return fmt.Errorf("uow: before COMMIT: %w", err)
	}
	if batch == nil {
		return r.commit(ctx)
	}
	return r.commitBatch(ctx, batch)
}

// collect makes the envelopes of all that the unit emits, in order.
func (r *root) collect(entries []entry) (events []event.Envelope, aggregates []event.Aggregate, err error) {
	seen := make(staleSet, len(entries))
	for _, e := range entries {
		if e.aggregate == nil {
			events = append(events, e.envelope)
			continue
		}
		if _, twice := seen[e.aggregate]; twice {
			continue
		}
		seen[e.aggregate] = struct{}{}
		aggregates = append(aggregates, e.aggregate)
		if _, stale := r.stale[e.aggregate]; stale {
			return nil, nil, fmt.Errorf("%w: %s %s", ErrStale, e.aggregate.AggregateType(), e.aggregate.AggregateID())
		}
		version, recorded := e.aggregate.AggregateVersion(), e.aggregate.RecordedEvents()
		if s, ok := r.saved[e.aggregate]; ok && s.events != len(recorded) {
			return nil, nil, fmt.Errorf("uow: %s %s recorded events after it was saved: save it last", e.aggregate.AggregateType(), e.aggregate.AggregateID())
		}
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

type aggregateKey struct{ tenant, kind, id string }

// contiguous demands that the versions of an aggregate's events follow one another. Where they do not, two instances of the
// aggregate were tracked, or versions that were given by hand are wrong, and consumers would miss one or take one for another.
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
		// Those of an aggregate without versions begin at 1 each time.
		if before := latest[key]; before > 0 && e.AggregateVersion > 1 && e.AggregateVersion != before+1 {
			return fmt.Errorf("uow: flush: %s %s: the event %s leads to version %d, and the one before it in this unit to %d: "+
				"is the aggregate tracked as two instances?", e.AggregateType, e.AggregateID, e.Type, e.AggregateVersion, before)
		}
		latest[key] = e.AggregateVersion
	}
	return nil
}

// Probed tells the unit that the last statement of its function has returned xid, the id of the transaction
// (pg_current_xact_id): Do need not send a statement of its own to find out whether the transaction is alive. Call it
// right before the outermost function returns nil; no statement may follow.
func (u *Unit) Probed(xid string) { u.root.xid = xid }

// flush hands the events to the sinks. Whatever they do, the last statement before COMMIT is one that an aborted
// transaction refuses, and it tells the id of the transaction.
func (r *root) flush(ctx context.Context, events []event.Envelope) error {
	sinks := r.manager.sinks
	if len(events) > 0 && len(sinks) == 0 {
		return fmt.Errorf("%w: the first is %s", ErrNoSink, events[0].Type)
	}
	if len(events) > 0 {
		for _, s := range sinks {
			r.xid = "" // of no use any more: other statements follow
			var err error
			if p, ok := s.(ProbeSink); ok {
				r.xid, err = p.FlushProbe(ctx, r.tx, events)
			} else {
				err = s.Flush(ctx, r.tx, events)
			}
			if err != nil {
				return fmt.Errorf("uow: flush: %w", err)
			}
		}
	}
	if r.xid != "" {
		return nil
	}
	if err := r.tx.Tx.QueryRowContext(ctx, probe).Scan(&r.xid); err != nil {
		if gone := interrupted(ctx); gone != nil {
			return fmt.Errorf("uow: before COMMIT: %w", gone)
		}
		return fmt.Errorf("uow: before COMMIT the transaction was found failed or busy: an error was not returned, or rows were not closed: %w", err)
	}
	return nil
}

// commit sends COMMIT and finds out what became of it.
func (r *root) commit(ctx context.Context) error {
	r.closed = true
	timer := time.AfterFunc(r.manager.cfg.CommitTimeout, r.cancel)
	err := r.tx.Commit()
	timer.Stop()
	return r.outcome(ctx, err)
}

// outcome ends a unit whose COMMIT was answered with err, if it was answered at all.
func (r *root) outcome(ctx context.Context, err error) error {
	// Before anything is asked: the pool may have no other connection, and others may be asking as well.
	r.release()
	switch {
	case err == nil:
		return nil
	case refused(err) || errors.Is(err, sql.ErrTxDone):
		r.abandon()
		return fmt.Errorf("uow: commit: %w", err)
	case r.xid == "":
		// The transaction wrote nothing, so there is nothing that could be there or not.
		return nil
	}
	r.manager.log.WarnContext(ctx, "oncebox: the answer to COMMIT was lost, asking the server", "xid", r.xid, "error", err)
	return r.resolve(context.WithoutCancel(ctx), err)
}

// resolve asks on another connection what became of the transaction. While the server says "in progress", its backend has not
// noticed that the client is gone, or is still committing. It is told to end, or it could stay so, with all its locks, until
// TCP gives up; if it is past the point of no return it commits first.
//
// The answer counts on the timeline on which the transaction was begun. On another one the same id belongs to somebody else.
func (r *root) resolve(ctx context.Context, lost error) error {
	ctx, cancel := context.WithTimeout(ctx, r.manager.cfg.CommitTimeout)
	defer cancel()
	db := r.manager.db.DB
	for attempt := 1; ; attempt++ {
		var outcome sql.NullString
		var timeline string
		err := db.QueryRowContext(ctx, status, r.xid).Scan(&outcome, &timeline)
		switch {
		case err != nil && pgsql.Code(err) != codeFutureXID, err == nil && timeline == "": // no answer, or that of a standby
		case err == nil && r.session.Timeline != "" && timeline != r.session.Timeline:
			return r.unknown(errors.Join(lost, fmt.Errorf("the server is on timeline %s now: another one has taken over", timeline)))
		case err == nil && outcome.String == "committed":
			return nil
		case err == nil && outcome.String == "aborted":
			r.abandon()
			return fmt.Errorf("uow: commit: %w: %w", ErrConnectionLost, lost)
		case err == nil && outcome.Valid: // in progress
			var ended int
			err = db.QueryRowContext(ctx, terminate, r.xid).Scan(&ended)
		default:
			return r.unknown(errors.Join(lost, err))
		}
		if backoff.Wait(ctx, backoff.Jitter(backoff.Exponential(attempt, 10*time.Millisecond, time.Second))) != nil {
			return r.unknown(errors.Join(lost, err))
		}
	}
}

func (r *root) unknown(err error) error {
	s := r.session
	return &CommitUnknownError{XID: r.xid, PID: s.PID, Start: s.Start, Timeline: s.Timeline, Err: err}
}

// committed tells everybody. The data is there: whatever goes wrong here must not look as if it was not.
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
