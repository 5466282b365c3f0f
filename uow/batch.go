package uow

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// queue returns the statements that store the events, and those that go last, if they can leave together with COMMIT, else nil.
//
// Then an answer that is lost may have been that of the INSERT or that of COMMIT. The id of the transaction tells what
// came of it either way, so it has to be known beforehand.
//
// COMMIT alone needs no statement before it that proves that the transaction is alive: a pipeline looks at what it was
// answered.
func (r *root) queue(ctx context.Context, events []event.Envelope, last []*pgx.QueuedQuery) (*pgx.Batch, error) {
	var sink batchSink
	if len(events) > 0 {
		if len(r.manager.sinks) != 1 {
			return nil, nil
		}
		var ok bool
		if sink, ok = r.manager.sinks[0].(batchSink); !ok {
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
	if errors.Is(err, ErrTransactionEnded) {
		r.committing(false)
		return err
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
