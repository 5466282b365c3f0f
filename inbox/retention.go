package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/uow"
)

const (
	// daysAhead is how many daily children are made in advance.
	daysAhead = 7
	// cleanInterval is how often Run cleans.
	cleanInterval = time.Hour
	// batch is how many rows one statement deletes.
	batch = 5000
	// tries is how often a table that is in use is asked for.
	tries = 5
)

const (
	makePartition = `SELECT {schema}.inbox_make_partition((clock_timestamp() AT TIME ZONE 'UTC')::date + $1::integer)`

	// oldestExpired finds the oldest child whose day ended before the retention, and when it ended.
	oldestExpired = `
SELECT format('%I.%I', n.nspname, c.relname), (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC'
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE i.inhparent = '{schema}.inbox'::regclass AND c.relname ~ '^inbox_[0-9]{8}$'
	AND (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC' <= clock_timestamp() - $1::interval
ORDER BY c.relname LIMIT 1`

	dropPartitions = `SELECT {schema}.inbox_drop_partitions($1::timestamptz)`

	// The children that are never dropped.
	deleteForeign = `
DELETE FROM {schema}.inbox_foreign WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM {schema}.inbox_foreign WHERE processed_at < clock_timestamp() - $1::interval LIMIT $2::integer))`
	deleteDefault = `
DELETE FROM {schema}.inbox_default WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM {schema}.inbox_default WHERE processed_at < clock_timestamp() - $1::interval LIMIT $2::integer))`
)

// Run cleans at once and then every hour, until ctx is done. What fails is logged and tried again: nothing that happens
// soon depends on it.
func (i *Inbox) Run(ctx context.Context) error {
	for {
		if err := i.Clean(ctx); err != nil && ctx.Err() == nil {
			i.log.WarnContext(ctx, "oncebox: cleaning the inbox failed, trying again", "pause", cleanInterval, "error", err)
		}
		if backoff.Wait(ctx, backoff.Jitter(cleanInterval)) != nil {
			return nil //nolint:nilerr // told to stop, which is no failure
		}
	}
}

// Clean makes partitions ahead and removes the entries that are older than the retention, once. It is safe in any number
// of processes.
func (i *Inbox) Clean(ctx context.Context) error {
	err := i.EnsurePartitions(ctx)
	if i.cfg.Retention == KeepForever {
		return err
	}
	return errors.Join(err, i.dropExpired(ctx), i.deleteExpired(ctx))
}

// EnsurePartitions makes the children of yesterday, today and the next days, until one cannot be made. It is safe in any
// number of processes. Entries of a day without a child go to the DEFAULT one and are found there, so nothing stops if
// this fails; but they are deleted one by one where a child is dropped as a whole, so it should come before the first
// message.
func (i *Inbox) EnsurePartitions(ctx context.Context) error {
	for day := -1; day <= daysAhead; day++ {
		// Each in a transaction of its own: locks are held as shortly as possible.
		err := i.patiently(ctx, func() error {
			_, err := i.sql.Exec(ctx, i.units.DB(ctx), makePartition, day)
			return err
		})
		if err != nil {
			return fmt.Errorf("inbox: make a partition: %w", pgsql.Explain(err))
		}
	}
	return nil
}

// dropExpired drops the children of days that are over for longer than the retention, the oldest first.
func (i *Inbox) dropExpired(ctx context.Context) error {
	for {
		var child string
		var end time.Time
		err := i.sql.QueryRow(ctx, i.units.DB(ctx), oldestExpired, []any{i.cfg.Retention}, &child, &end)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("inbox: look for expired partitions: %w", pgsql.Explain(err))
		}
		dropped := false
		err = i.patiently(ctx, func() (err error) {
			dropped, err = i.drop(ctx, child, end)
			return err
		})
		if err != nil {
			return fmt.Errorf("inbox: drop partition %s: %w", child, err)
		}
		if !dropped {
			return nil
		}
	}
}

// drop drops one child, unless a message of its day was handled within the retention: a consumer that was days behind
// needs its entries for as long as any other. It looks twice, because looking takes its time and nobody should wait for
// it in vain, and because an entry could be made in between.
func (i *Inbox) drop(ctx context.Context, child string, end time.Time) (dropped bool, err error) {
	inUse := `SELECT EXISTS (SELECT FROM ` + child + ` WHERE processed_at > clock_timestamp() - $1::interval)`
	var used bool
	err = i.sql.QueryRow(ctx, i.units.DB(ctx), inUse, []any{i.cfg.Retention}, &used)
	if err != nil || used {
		return false, err
	}
	err = i.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		// Who waits for this lock makes every handler of such an old message wait behind it.
		for _, statement := range []string{"SET LOCAL lock_timeout = '50ms'", "LOCK TABLE " + child + " IN ACCESS EXCLUSIVE MODE"} {
			if _, err := u.DB().ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		err := i.sql.QueryRow(ctx, u.DB(), inUse, []any{i.cfg.Retention}, &used)
		if err != nil || used {
			return err
		}
		_, err = i.sql.Exec(ctx, u.DB(), dropPartitions, end)
		return err
	}, readCommitted(), uow.WithoutRetry())
	return err == nil && !used, err
}

// deleteExpired deletes in batches what no child of a day holds.
func (i *Inbox) deleteExpired(ctx context.Context) error {
	for _, statement := range []string{deleteForeign, deleteDefault} {
		for n := int64(batch); n == batch; {
			var err error
			if n, err = i.sql.Exec(ctx, i.units.DB(ctx), statement, i.cfg.Retention, batch); err != nil {
				return fmt.Errorf("inbox: delete expired entries: %w", pgsql.Explain(err))
			}
		}
	}
	return nil
}

// patiently calls fn again while the tables are in use. The functions of the database wait for a lock for 50 ms only,
// because all handlers wait behind whoever waits.
func (i *Inbox) patiently(ctx context.Context, fn func() error) error {
	for attempt := 1; ; attempt++ {
		err := fn()
		switch pgsql.Code(err) {
		case pgsql.CodeLockNotAvailable, pgsql.CodeDeadlock:
		default:
			return err
		}
		if attempt == tries {
			return fmt.Errorf("the table is in use: %w", err)
		}
		if backoff.Wait(ctx, backoff.Jitter(backoff.Exponential(attempt, 100*time.Millisecond, time.Second))) != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}
