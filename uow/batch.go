package uow

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// queue returns the statements that store the events, if they can leave together with COMMIT, else nil.
//
// Then an answer that is lost may have been that of the INSERT or that of COMMIT. The id of the transaction tells what
// came of it either way, so it has to be known beforehand.
func (r *root) queue(ctx context.Context, events []event.Envelope) (*pgx.Batch, error) {
	if r.known == "" || len(events) == 0 || len(r.manager.sinks) != 1 {
		return nil, nil
	}
	sink, ok := r.manager.sinks[0].(BatchSink)
	if !ok {
		return nil, nil
	}
	if ok, err := r.pipeline(func(pgsql.Pipeline) error { return nil }); !ok || err != nil {
		return nil, err
	}
	batch := &pgx.Batch{}
	if err := sink.FlushBatch(ctx, r.tx, batch, events); err != nil {
		return nil, fmt.Errorf("uow: flush: %w", err)
	}
	return batch, nil
}

// commitBatch sends the statements and COMMIT.
//
// The caller can still give up, since it may wait for locks of others here. The connection is closed then and the
// server told to stop. It was in time, or it was not: the transaction's id tells.
func (r *root) commitBatch(ctx context.Context, batch *pgx.Batch) error {
	r.xid = r.known
	timed, cancel := context.WithTimeout(ctx, r.manager.cfg.CommitTimeout)
	var open bool
	_, err := r.pipeline(func(p pgsql.Pipeline) (err error) {
		open, err = p.SendCommit(timed, batch)
		return err
	})
	cancel()
	if open {
		return fmt.Errorf("uow: flush: %w", pgsql.Explain(err))
	}
	r.closed = true
	_ = r.tx.Commit() // sends nothing: database/sql has to know
	return r.outcome(ctx, err)
}
