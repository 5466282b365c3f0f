package uow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/backoff"
)

const (
	// probe proves that the transaction is alive, and asks for its id without assigning one.
	probe = `SELECT coalesce(pg_current_xact_id_if_assigned()::text, '')`
	// status: committed, aborted, in progress, or NULL when the server has forgotten it.
	status = `SELECT pg_xact_status($1::text::xid8)`
)

// finish flushes and commits.
func (u *Unit) finish(ctx context.Context) error {
	events, err := u.collect(ctx)
	if err != nil {
		return err
	}
	r := u.root
	if err := r.flush(ctx, events); err != nil {
		return err
	}
	// The last moment at which the caller can change its mind.
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("uow: before COMMIT: %w", err)
	}
	if err := u.commit(ctx); err != nil {
		return err
	}
	for _, e := range u.entries {
		if e.aggregate != nil {
			e.aggregate.ClearEvents()
		}
	}
	ctx = context.WithoutCancel(ctx)
	for _, s := range r.manager.sinks {
		if c, ok := s.(CommitSink); ok && len(events) > 0 {
			c.Committed(ctx, events)
		}
	}
	for _, hook := range u.hooks {
		hook(ctx)
	}
	return nil
}

// collect makes the envelopes of all that the unit emits, in order.
func (u *Unit) collect(ctx context.Context) ([]event.Envelope, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	var events []event.Envelope
	for _, e := range u.entries {
		if e.aggregate == nil {
			events = append(events, e.envelope)
			continue
		}
		if _, stale := u.root.stale[e.aggregate]; stale {
			return nil, fmt.Errorf("%w: %s %s", ErrStale, e.aggregate.AggregateType(), e.aggregate.AggregateID())
		}
		version := e.aggregate.AggregateVersion()
		for i, rec := range e.aggregate.RecordedEvents() {
			env, err := u.root.manager.maker.Recorded(ctx, e.aggregate, version+int64(i)+1, rec)
			if err != nil {
				return nil, fmt.Errorf("uow: flush: %w", err)
			}
			events = append(events, env)
		}
	}
	return events, nil
}

// flush hands the events to the sinks. Whatever they do, the last statement before COMMIT is one that an aborted
// transaction refuses, and it tells the id of the transaction.
func (r *root) flush(ctx context.Context, events []event.Envelope) error {
	sinks := r.manager.sinks
	if len(events) > 0 && len(sinks) == 0 {
		return fmt.Errorf("%w: the first is %s", ErrNoSink, events[0].Type)
	}
	probed := false
	if len(events) > 0 {
		for _, s := range sinks {
			var err error
			if p, ok := s.(ProbeSink); ok {
				r.xid, err = p.FlushProbe(ctx, r.tx, events)
				probed = true
			} else {
				err = s.Flush(ctx, r.tx, events)
				probed = false
			}
			if err != nil {
				return fmt.Errorf("uow: flush: %w", err)
			}
		}
	}
	if probed {
		return nil
	}
	if err := r.tx.Tx.QueryRowContext(ctx, probe).Scan(&r.xid); err != nil {
		return fmt.Errorf("uow: the transaction failed before COMMIT, an earlier error was not returned: %w", err)
	}
	return nil
}

// commit sends COMMIT and finds out what became of it.
func (u *Unit) commit(ctx context.Context) error {
	r := u.root
	r.ended.Store(true)
	defer r.release()
	timer := time.AfterFunc(r.manager.cfg.CommitTimeout, r.cancel)
	err := r.tx.Commit()
	timer.Stop()
	switch {
	case err == nil:
		return nil
	case refused(err) || errors.Is(err, sql.ErrTxDone):
		u.abandon()
		return fmt.Errorf("uow: commit: %w", err)
	case r.xid == "":
		// The transaction wrote nothing, so there is nothing that could be there or not.
		return nil
	}
	r.manager.log.WarnContext(ctx, "oncebox: the answer to COMMIT was lost, asking the server", "xid", r.xid, "error", err)
	return u.resolve(context.WithoutCancel(ctx), err)
}

// abandon marks what the unit tracked as having lived through a rollback.
func (u *Unit) abandon() {
	for _, e := range u.entries {
		if e.aggregate != nil {
			u.root.stale[e.aggregate] = struct{}{}
		}
	}
}

// resolve asks on another connection what became of the transaction. While the server says "in progress", its backend
// has not noticed yet that the client is gone, or is still writing the commit record.
func (u *Unit) resolve(ctx context.Context, lost error) error {
	r := u.root
	ctx, cancel := context.WithTimeout(ctx, r.manager.cfg.CommitTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		var outcome sql.NullString
		err := r.manager.db.DB.QueryRowContext(ctx, status, r.xid).Scan(&outcome)
		switch {
		case err == nil && outcome.String == "committed":
			return nil
		case err == nil && outcome.String == "aborted":
			u.abandon()
			return fmt.Errorf("uow: commit: the connection was lost and the transaction rolled back: %w", lost)
		case err == nil && !outcome.Valid:
			return &CommitUnknownError{XID: r.xid, Err: lost}
		}
		pause := time.NewTimer(backoff.Jitter(backoff.Exponential(attempt, 10*time.Millisecond, time.Second)))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return &CommitUnknownError{XID: r.xid, Err: errors.Join(lost, err)}
		}
	}
}
