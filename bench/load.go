package main

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox"
)

// loader makes large backlogs within the server, many times faster than units of work could store them. The rows are
// copies of one unit's, with ids, versions and numbers of their own, so that they lie in the lanes where the store puts
// their keys.
type loader struct {
	db   *bun.DB
	work backlog
	next int // version to be stored next
}

const (
	copied = `not_before, expires_at, schema_version, lane, max_attempts, retry_count, crashes, tenant_id, topic, ordering_key,
	aggregate_type, aggregate_id, event_type, source, routing_key, schema_id, content_type, dedup_key, event_metadata, payload`

	// insertCopies draws the numbers in the order of the versions: a column's default is evaluated above the sort.
	insertCopies = `
INSERT INTO outbox (id, occurred_at, aggregate_version, ` + copied + `)
SELECT gen_random_uuid(), clock_timestamp(), v, ` + copied + `
FROM generate_series(%d, %d) v CROSS JOIN template ORDER BY v`

	// insertSent gives published rows numbers below those of all other rows.
	insertSent = `
INSERT INTO outbox (seq, id, occurred_at, aggregate_version, ` + copied + `)
SELECT -v, gen_random_uuid(), clock_timestamp(), v, ` + copied + `
FROM generate_series(%d, %d) v CROSS JOIN template`

	// atOnce is how many versions one transaction stores, usually.
	atOnce = 250
)

// newLoader stores one event of each aggregate as units of work do, and keeps them as the template.
func newLoader(ctx context.Context, db *bun.DB, store *outbox.Store, work backlog) (*loader, error) {
	payload, err := newMoneyMoved(accountID(0)).encode()
	if err != nil {
		return nil, err
	}
	unit := make([]event.Envelope, aggregates)
	for i := range unit {
		if unit[i], err = work.envelope(i, payload); err != nil {
			return nil, err
		}
	}
	err = db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error { return store.Flush(ctx, tx, unit) })
	if err == nil {
		_, err = db.DB.ExecContext(ctx, "CREATE TABLE template AS SELECT * FROM outbox")
	}
	if err == nil {
		_, err = db.DB.ExecContext(ctx, "TRUNCATE outbox")
	}
	if err != nil {
		return nil, fmt.Errorf("prefill: %w", err)
	}
	return &loader{db: db, work: work, next: 1}, nil
}

// waiting stores the next versions of each aggregate.
func (l *loader) waiting(ctx context.Context, versions int) error {
	err := l.insert(ctx, insertCopies, l.next, versions, atOnce)
	l.next += versions
	return err
}

// waitingAtOnce is waiting with a single transaction.
func (l *loader) waitingAtOnce(ctx context.Context, versions int) error {
	err := l.insert(ctx, insertCopies, l.next, versions, versions)
	l.next += versions
	return err
}

// sent stores versions of each aggregate as published rows of today.
func (l *loader) sent(ctx context.Context, versions int) error {
	return l.insert(ctx, insertSent, 1, versions, atOnce)
}

func (l *loader) insert(ctx context.Context, statement string, first, versions, step int) error {
	for end := first + versions; first < end; first += step {
		if _, err := l.db.DB.ExecContext(ctx, fmt.Sprintf(statement, first, min(first+step, end)-1)); err != nil {
			return fmt.Errorf("prefill: %w", err)
		}
		if done := first + step - 1; done%2500 == 0 {
			progressf("prefill of %s: %d rows", l.work.topic, done*aggregates)
		}
	}
	return nil
}

// settleDown waits until the server has finished the work that the prefill caused, so that it does not slow down a run.
func (l *loader) settleDown(ctx context.Context) error {
	for _, statement := range []string{"VACUUM (ANALYZE) outbox"} {
		if _, err := l.db.DB.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("prefill: %w", err)
		}
	}
	if _, err := l.db.DB.ExecContext(ctx, "CHECKPOINT"); err != nil {
		progressf("no checkpoint before the run: %v", err) // CHECKPOINT needs a right of its own
	}
	return nil
}
