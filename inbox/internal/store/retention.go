package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/internal/partition"
	"github.com/oncebox/oncebox/internal/pgerr"
)

const (
	// daysAhead is how many daily partitions are made in advance.
	daysAhead = 7
	// chunk is how many rows one statement deletes.
	chunk = 5000
)

const (
	makePartition  = `SELECT {schema}.inbox_make_partition((clock_timestamp() AT TIME ZONE 'UTC')::date + $1::integer)`
	emptyPartition = `SELECT {schema}.inbox_empty_partition($1::date, $2::interval)`
	dropPartition  = `SELECT FROM {schema}.inbox_drop_partition($1::date)`

	// deleteForeign and deleteDefault empty the partitions that are never dropped. The time is read once, in a subquery: PostgreSQL cannot
	// use a volatile function to bound an index scan.
	deleteForeign = `
DELETE FROM {schema}.inbox_foreign WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM {schema}.inbox_foreign e WHERE processed_at < (SELECT clock_timestamp()) - $1::interval` + notNeeded + `))`
	deleteDefault = `
DELETE FROM {schema}.inbox_default WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM {schema}.inbox_default e WHERE processed_at < (SELECT clock_timestamp()) - $1::interval` + notNeeded + `))`
	notNeeded = `
		AND NOT EXISTS (SELECT FROM {schema}.inbox_consumer c WHERE c.consumer = e.consumer AND e.processed_at > c.active_at - $1::interval)
	LIMIT $2::integer`
	// The tries of messages that another process has settled.
	deleteAttempts = `
DELETE FROM {schema}.inbox_attempt WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM {schema}.inbox_attempt WHERE tried_at < (SELECT clock_timestamp()) - $1::interval LIMIT $2::integer))`
	// The steps of messages that nobody handles any more, such as dead letters that were discarded.
	deleteSteps = `
DELETE FROM {schema}.inbox_step WHERE ctid = ANY (ARRAY(
	SELECT s.ctid FROM {schema}.inbox_step s WHERE s.done_at < (SELECT clock_timestamp()) - $1::interval
		AND NOT EXISTS (SELECT FROM {schema}.inbox_dead d
			WHERE (d.message_key, d.consumer, d.tenant_id, d.source) = (s.message_key, s.consumer, s.tenant_id, s.source))
		AND NOT EXISTS (SELECT FROM {schema}.inbox_parked p
			WHERE (p.message_key, p.consumer, p.tenant_id, p.source) = (s.message_key, s.consumer, s.tenant_id, s.source))
	LIMIT $2::integer))`
	// The leases of processes that died, on keys without any later message.
	deleteLeases = `
DELETE FROM {schema}.oncebox_lease WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM {schema}.oncebox_lease WHERE task = 'inbox.message' AND lease_until < (SELECT clock_timestamp()) - $1::interval LIMIT $2::integer))`
)

// cleaner removes rows that nobody needs any more, from all tables of the inbox.
type cleaner struct{ *Handle }

// MakePartitions makes the daily partitions of yesterday, today and the next days. If one day fails, the others are made all the same.
func (t cleaner) MakePartitions(ctx context.Context) error {
	return partition.Make(ctx, t.Patient, t.DB(ctx), makePartition, -1, daysAhead)
}

// Clean removes the rows that are older than the retention, except for entries that are still needed.
func (t cleaner) Clean(ctx context.Context, retention time.Duration) error {
	return errors.Join(t.dropExpired(ctx, retention), t.deleteExpired(ctx, retention))
}

// dropExpired empties the partitions of days that ended longer ago than the retention, and drops the empty partitions. A partition can only be
// dropped while no handler runs, so it may take days until it goes. An empty partition costs nothing meanwhile.
func (t cleaner) dropExpired(ctx context.Context, retention time.Duration) error {
	days, err := partition.Expired(ctx, t.Patient, t.DB(ctx), "inbox", retention)
	if err != nil {
		return fmt.Errorf("inbox: look for expired partitions: %w", pgerr.Explain(err))
	}
	var empty []partition.Day
	var errs []error
	for _, day := range days {
		var emptied bool
		err := partition.Patiently(ctx, func() error {
			return t.Patient.QueryRow(ctx, t.DB(ctx), emptyPartition, []any{day.Date, retention}, &emptied)
		})
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("inbox: empty the partition of %s: %w", day, pgerr.Explain(err)))
		case emptied:
			empty = append(empty, day)
		}
	}
	for _, day := range empty {
		err := partition.Patiently(ctx, func() error {
			_, err := t.Patient.Exec(ctx, t.DB(ctx), dropPartition, day.Date)
			return err
		})
		if partition.InUse(err) {
			break // the other partitions are in use too, and handlers queue behind a process that waits for the lock
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("inbox: drop the partition of %s: %w", day, pgerr.Explain(err)))
		}
	}
	return errors.Join(errs...)
}

// deleteExpired deletes, in batches, expired rows that are not in a daily partition.
func (t cleaner) deleteExpired(ctx context.Context, retention time.Duration) error {
	for _, statement := range []string{deleteForeign, deleteDefault, deleteAttempts, deleteSteps, deleteLeases} {
		for n := int64(chunk); n == chunk; {
			var err error
			if n, err = t.Patient.Exec(ctx, t.DB(ctx), statement, retention, chunk); err != nil {
				return fmt.Errorf("inbox: delete expired entries: %w", pgerr.Explain(err))
			}
		}
	}
	return nil
}
