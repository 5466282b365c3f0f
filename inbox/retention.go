package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/partition"
	"github.com/oncebox/oncebox/internal/pgsql"
)

const (
	// daysAhead is how many daily partitions are made in advance.
	daysAhead = 7
	// cleanInterval is how often RunCleaning cleans.
	cleanInterval = time.Hour
	// chunk is how many rows one statement deletes.
	chunk = 5000
)

const (
	makePartition  = `SELECT {schema}.inbox_make_partition((clock_timestamp() AT TIME ZONE 'UTC')::date + $1::integer)`
	emptyPartition = `SELECT {schema}.inbox_empty_partition($1::date, $2::interval)`
	dropPartition  = `SELECT FROM {schema}.inbox_drop_partition($1::date)`

	giveUpConsumer = `
WITH unsubscribed AS (DELETE FROM {schema}.inbox_subscription WHERE consumer = $1::text),
	disowned AS (DELETE FROM {schema}.inbox_owner WHERE consumer = $1::text),
	unseen AS (DELETE FROM {schema}.inbox_process WHERE consumer = $1::text),
	unhandled AS (DELETE FROM {schema}.inbox_topic WHERE consumer = $1::text)
DELETE FROM {schema}.inbox_consumer WHERE consumer = $1::text`

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
DELETE FROM {schema}.inbox_lease WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM {schema}.inbox_lease WHERE lease_until < (SELECT clock_timestamp()) - $1::interval LIMIT $2::integer))`
)

// RunCleaning cleans at once and then every hour, until ctx is done. Errors are logged and tried again: cleaning is not urgent.
func (i *Inbox) RunCleaning(ctx context.Context) error {
	for {
		if err := i.Clean(ctx); err != nil && ctx.Err() == nil {
			i.store.Log.WarnContext(ctx, "oncebox: cleaning the inbox failed, trying again", "pause", cleanInterval, "error", err)
		}
		if backoff.Wait(ctx, backoff.Jitter(cleanInterval)) != nil {
			return nil //nolint:nilerr // told to stop, which is no failure
		}
	}
}

// Clean makes partitions ahead and removes the entries, the dead letters and the audit that are older than their
// retentions, once. It is safe in any number of processes.
func (i *Inbox) Clean(ctx context.Context) error {
	err := errors.Join(i.EnsurePartitions(ctx), i.dead.Expire(ctx, i.cfg.DeadRetention), i.audit.Expire(ctx, i.store.DB(ctx)))
	if i.cfg.Retention == KeepForever {
		return err
	}
	return errors.Join(err, i.dropExpired(ctx), i.deleteExpired(ctx))
}

// EnsurePartitions makes the daily partitions of yesterday, today and the next days. If one day fails, the others are made all the same. It
// waits once, for up to two seconds, for a table that is in use. It is safe in any number of processes. Entries of a day without a
// partition go to the DEFAULT partition and are found there, so nothing stops if this fails. But they are deleted one by one, while a daily
// partition is dropped as a whole, so call it before the first message.
func (i *Inbox) EnsurePartitions(ctx context.Context) error {
	return wrapErr("make partitions", partition.Make(ctx, i.store.Patient, i.store.DB(ctx), makePartition, -1, daysAhead))
}

// dropExpired empties the partitions of days that ended longer ago than the retention, except for entries that are still needed, and drops
// the empty partitions. A partition can only be dropped while no handler runs, so it may take days until it goes. An empty partition costs
// nothing meanwhile.
func (i *Inbox) dropExpired(ctx context.Context) error {
	days, err := partition.Expired(ctx, i.store.Patient, i.store.DB(ctx), "inbox", i.cfg.Retention)
	if err != nil {
		return fmt.Errorf("inbox: look for expired partitions: %w", pgsql.Explain(err))
	}
	var empty []partition.Day
	var errs []error
	for _, day := range days {
		var emptied bool
		err := partition.Patiently(ctx, func() error {
			return i.store.Patient.QueryRow(ctx, i.store.DB(ctx), emptyPartition, []any{day.Date, i.cfg.Retention}, &emptied)
		})
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("inbox: empty the partition of %s: %w", day, pgsql.Explain(err)))
		case emptied:
			empty = append(empty, day)
		}
	}
	for _, day := range empty {
		err := partition.Patiently(ctx, func() error {
			_, err := i.store.Patient.Exec(ctx, i.store.DB(ctx), dropPartition, day.Date)
			return err
		})
		if partition.InUse(err) {
			break // the other partitions are in use too, and handlers queue behind a process that waits for the lock
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("inbox: drop the partition of %s: %w", day, pgsql.Explain(err)))
		}
	}
	return errors.Join(errs...)
}

// Forget declares that a consumer will never run again. For other consumers the retention counts from their last run, so that nothing
// happens twice when a consumer comes back after a long time; the entries of a forgotten consumer are removed by their age alone. Forget
// also ends its subscriptions: without a broker, messages are stored for a subscribed consumer although no process runs it. Another service
// may use the name from then on.
func (i *Inbox) Forget(ctx context.Context, consumer string) error {
	_, err := i.store.Patient.Exec(ctx, i.store.DB(ctx), giveUpConsumer, consumer)
	if err != nil {
		return fmt.Errorf("inbox: forget consumer %s: %w", consumer, pgsql.Explain(err))
	}
	return nil
}

// deleteExpired deletes, in batches, expired rows that are not in a daily partition.
func (i *Inbox) deleteExpired(ctx context.Context) error {
	for _, statement := range []string{deleteForeign, deleteDefault, deleteAttempts, deleteSteps, deleteLeases} {
		for n := int64(chunk); n == chunk; {
			var err error
			if n, err = i.store.Patient.Exec(ctx, i.store.DB(ctx), statement, i.cfg.Retention, chunk); err != nil {
				return fmt.Errorf("inbox: delete expired entries: %w", pgsql.Explain(err))
			}
		}
	}
	return nil
}
