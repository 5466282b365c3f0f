package uow

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Send sends statements of the unit in one round trip, and BEGIN with them if they are its first. Each is prepared on its first
// use of a connection. ok is false, and nothing was sent, if the connection cannot do that: it can if the pool was opened by
// config.OpenDB.
func (u *Unit) Send(ctx context.Context, b *pgx.Batch) (ok bool, err error) {
	return u.root.pipeline(func(p pgsql.Pipeline) error { return pgsql.Explain(p.Send(ctx, b)) })
}

// SendLast has the unit send statements after all others, those of its sinks included, and together with COMMIT if it can: with one
// sink that is a [BatchSink], or no events, and an id that it knows, see [Unit.Identified]. What several calls give is sent in
// their order. What is given within a savepoint that is rolled back is not sent. A statement that fails fails the unit. ok is
// false, and nothing will be sent, if the unit has ended, or the connection cannot do that; see [Unit.Send].
func (u *Unit) SendLast(b *pgx.Batch) (ok bool) {
	r := u.root
	if !r.canPipeline() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if u.ended {
		return false
	}
	r.active.last = append(r.active.last, b.QueuedQueries...)
	return true
}

// Identified tells the unit the id of its transaction (pg_current_xact_id), which some statement has returned: it is spared a
// statement before COMMIT that asks for it, and COMMIT can leave together with others.
func (u *Unit) Identified(xid string) {
	u.root.mu.Lock()
	defer u.root.mu.Unlock()
	u.root.xid = xid
}

// ProvedBy gives the unit a way to find out after a crash of the server whether it was committed: a row that it writes itself.
// Without one, and without an event that was stored in a [FindSink], the outcome is unknown where the answer to COMMIT was lost in a
// crash. What is given within a savepoint that is rolled back is not used.
func (u *Unit) ProvedBy(find Proof) {
	r := u.root
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active.proofs = append(r.active.proofs, find)
}

// queue returns the statements that store the events, and those that go last, if they can leave together with COMMIT, else nil.
//
// Then an answer that is lost may have been that of the INSERT or that of COMMIT. The id of the transaction tells what
// came of it either way, so it has to be known beforehand.
//
// COMMIT alone needs no statement before it that proves that the transaction is alive: a pipeline looks at what it was
// answered.
func (r *root) queue(ctx context.Context, events []event.Envelope, last []*pgx.QueuedQuery) (*pgx.Batch, error) {
	var sink BatchSink
	if len(events) > 0 {
		if len(r.manager.sinks) != 1 {
			return nil, nil
		}
		var ok bool
		if sink, ok = r.manager.sinks[0].(BatchSink); !ok {
			return nil, nil
		}
	}
	if r.xid == "" || !r.canPipeline() {
		return nil, nil
	}
	batch := &pgx.Batch{}
	if sink != nil {
		if err := sink.FlushBatch(ctx, r.tx, batch, events); err != nil {
			return nil, fmt.Errorf("uow: flush: %w", err)
		}
	}
	batch.QueuedQueries = append(batch.QueuedQueries, last...)
	return batch, nil
}

// sendLast is for units that cannot send COMMIT with it.
func (r *root) sendLast(ctx context.Context, last []*pgx.QueuedQuery) error {
	_, err := r.pipeline(func(p pgsql.Pipeline) error { return p.Send(ctx, &pgx.Batch{QueuedQueries: last}) })
	if err != nil {
		return fmt.Errorf("uow: flush: %w", pgsql.Explain(err))
	}
	return nil
}

// commitBatch sends the statements and COMMIT.
//
// The caller can still give up, since it may wait for locks of others here, unless there is nothing but COMMIT. The
// connection is closed then. How far the server has come nobody knows: see resolve, which ends it if it waits for a lock.
func (r *root) commitBatch(ctx context.Context, batch *pgx.Batch, p proofs) error {
	if batch.Len() == 0 {
		ctx = context.WithoutCancel(ctx)
	}
	timed, cancel := context.WithTimeout(ctx, r.manager.cfg.CommitTimeout)
	var open bool
	r.committing(true)
	_, err := r.pipeline(func(p pgsql.Pipeline) (err error) {
		open, err = p.SendCommit(timed, batch)
		return err
	})
	cancel()
	if errors.Is(err, pgsql.ErrNoTx) {
		return fmt.Errorf("%w: %w", errNotOurs, err)
	}
	if open {
		r.committing(false)
		return fmt.Errorf("uow: flush: %w", pgsql.Explain(err))
	}
	r.closed = true
	_ = r.tx.Commit() // sends nothing: database/sql has to know
	return r.outcome(ctx, err, p)
}

// canPipeline tells whether the connection is one on which statements can share a round trip.
func (r *root) canPipeline() bool {
	ok, err := r.pipeline(func(pgsql.Pipeline) error { return nil })
	return ok && err == nil
}

// pipeline calls fn with the connection, if it is one on which statements can share a round trip.
func (r *root) pipeline(fn func(pgsql.Pipeline) error) (ok bool, err error) {
	rawErr := r.conn.Raw(func(c any) error {
		var p pgsql.Pipeline
		if p, ok = c.(pgsql.Pipeline); ok {
			err = fn(p)
		}
		return nil // an error could make database/sql close the connection
	})
	if rawErr != nil {
		return true, rawErr
	}
	return ok, err
}
