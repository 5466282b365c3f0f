package upkeep

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/partition"
)

const (
	isPartition = `
SELECT EXISTS (SELECT FROM pg_inherits WHERE inhparent = '{schema}.{table}'::regclass AND inhrelid = to_regclass($1::text))`
	hasRows = `SELECT EXISTS (SELECT FROM %s)`
	// hasUnsent looks for unpublished rows of a day, in each lane of its rows, as outbox_drop_partition does.
	hasUnsent = `
WITH RECURSIVE l AS (
	(SELECT o.lane FROM %[1]s o ORDER BY o.lane LIMIT 1)
	UNION ALL SELECT (SELECT o.lane FROM %[1]s o WHERE o.lane > l.lane ORDER BY o.lane LIMIT 1) FROM l WHERE l.lane IS NOT NULL)
SELECT EXISTS (SELECT FROM l LEFT JOIN {schema}.outbox_cursor c USING (lane) CROSS JOIN LATERAL (
	SELECT FROM %[1]s o WHERE o.lane = l.lane AND o.seq > coalesce(c.sent, 0) AND (o.seq <@ c.ahead) IS NOT TRUE LIMIT 1) x)`
	dropPartition = `SELECT {schema}.outbox_drop_partition($1::date, kind => $2::text)`
	dropProgress  = `SELECT {schema}.outbox_drop_partition(day, kind => 'outbox_progress')
FROM (SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
	WHERE i.inhparent = '{schema}.outbox_progress'::regclass AND c.relname ~ '^outbox_progress_[0-9]{8}$'
		AND (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC'
			<= clock_timestamp() - greatest($1::interval, interval '24 hours') ORDER BY 1 LIMIT 1) x`

	// lockRetention makes sure that only one process at a time drops partitions.
	lockRetention = `SELECT pg_try_advisory_xact_lock(hashtextextended('oncebox.outbox.retention', '{schema}.outbox_sent'::regclass::oid::bigint))`
	// beUnhurried keeps the server from ending the transaction while BeforeDrop takes its time. The idle transaction
	// holds no snapshot, so VACUUM can work. Not every version of PostgreSQL has both settings.
	beUnhurried = `
SELECT count(set_config(name, '0', true)) FROM pg_settings
WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')`

	// emptyDefault removes published rows that went to the DEFAULT child, in batches.
	emptyDefault = `
DELETE FROM {schema}.{table}_default WHERE ctid = ANY (ARRAY(
	SELECT p.place FROM ({rest}) p WHERE p.within < clock_timestamp() - $1::interval LIMIT 5000))`
	emptyProgress = `
DELETE FROM {schema}.outbox_progress_default p USING {schema}.outbox_cursor c
WHERE p.lane = c.lane AND p.upto < c.upto AND p.at < clock_timestamp() - greatest($1::interval, interval '24 hours')
	AND NOT EXISTS (SELECT FROM {schema}.outbox o WHERE o.lane = p.lane AND o.seq <= p.upto) -- it tells when they were sent`

	// oldestInDefault finds the oldest day in the DEFAULT child that ended before the retention. A day of outbox in which something is unsent is
	// left out: it would be published while BeforeDrop is at work, and then deleted although BeforeDrop has not seen it.
	oldestInDefault = `
SELECT format('%I.%I', n.nspname, c.relname), (SELECT d.day FROM (
		SELECT DISTINCT (p.within AT TIME ZONE 'UTC')::date AS day FROM ({rest}) p
		WHERE p.within < date_trunc('day', (clock_timestamp() - $1::interval) AT TIME ZONE 'UTC') AT TIME ZONE 'UTC') d
	WHERE '{table}' <> 'outbox' OR NOT EXISTS (
		SELECT FROM {schema}.outbox_default o LEFT JOIN {schema}.outbox_cursor l USING (lane)
		WHERE (o.created_at AT TIME ZONE 'UTC')::date = d.day AND o.seq > coalesce(l.sent, 0) AND (o.seq <@ l.ahead) IS NOT TRUE)
	ORDER BY d.day LIMIT 1)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = '{schema}.{table}_default'::regclass`
	dayOfDefault = `
DELETE FROM {schema}.{table}_default WHERE ctid = ANY (ARRAY(
	SELECT p.place FROM ({rest}) p WHERE p.within >= $1::timestamptz AND p.within < $2::timestamptz))`
)

// ErrBusy means that a table was in use. Try the call again later.
var ErrBusy = errors.New("outbox: the table is in use, try again")

// errNotOurTurn means that another process is dropping partitions.
var errNotOurTurn = errors.New("outbox: another process is dropping partitions")

// errStays means that a day was not dropped, because a long transaction has committed a row of that day meanwhile. The error rolls back the writes of
// BeforeDrop.
var errStays = errors.New("outbox: the partition contains events that were not published, so it is not dropped")

// DropExpired drops the days that are older than the retention, the oldest first. It calls outbox.Config.BeforeDrop for each day. If BeforeDrop
// fails, that day stays, DropExpired goes on with the next one, and returns the error at the end.
//
// It waits at most 50 ms for a lock that somebody else holds, because commits and settles would wait behind it. After a few tries it returns
// [ErrBusy]: call it again later. While another process drops partitions, it does nothing.
func (u *Upkeep) DropExpired(ctx context.Context) error {
	kept, err := u.dropExpired(ctx)
	return errors.Join(append(kept, err)...)
}

// dropExpired returns the errors of BeforeDrop separately.
func (u *Upkeep) dropExpired(ctx context.Context) (kept []error, err error) {
	rule, err := u.policy(ctx)
	if err != nil || rule.retention == KeepForever || rule.archived && u.cfg.BeforeDrop == nil {
		return nil, err
	}
	retention := max(rule.retention, 24*time.Hour) // with NoRetention only days from before that setting have rows
	// The log of events and the table of events that left out of their turn have days of their own.
	for _, f := range families() {
		k, err := u.dropFamily(ctx, f, retention)
		if kept = append(kept, k...); err != nil {
			return kept, err
		}
	}
	return kept, u.forgetProgress(ctx, retention)
}

// dropFamily drops the expired days of one table, and empties its DEFAULT child. A day whose BeforeDrop fails stays and
// does not hold up the others.
func (u *Upkeep) dropFamily(ctx context.Context, f family, retention time.Duration) (kept []error, err error) {
	days, err := partition.Expired(ctx, u.box.Run, u.box.DB, f.table, retention) // days with unpublished rows are not dropped
	if err != nil {
		return nil, outboxdb.Wrap("look for expired partitions", err)
	}
	for _, day := range days {
		p := u.partition(f)
		p.Name, p.Day = day.Child, day.Date
		err := u.retire(ctx, func(ctx context.Context, tx bun.Tx) error { return u.dropOne(ctx, tx, p) })
		switch k := (*keptError)(nil); {
		case errors.As(err, &k):
			kept = append(kept, err)
		// The other process does the same work, so this one has nothing to do.
		case errors.Is(err, errNotOurTurn):
			return kept, nil
		case errors.Is(err, errStays):
		case err != nil:
			return kept, outboxdb.Wrap("drop "+p.Name, err)
		}
	}
	// Without an archive a batch is deleted wherever it is. With one, a day is archived and deleted as a
	// whole, see emptyDay.
	if u.cfg.BeforeDrop == nil {
		return kept, u.emptyDefault(ctx, f, retention)
	}
	for more := true; more; {
		err := u.retire(ctx, func(ctx context.Context, tx bun.Tx) (err error) {
			more, err = u.emptyDay(ctx, tx, f, retention)
			return err
		})
		switch k := (*keptError)(nil); {
		case errors.As(err, &k):
			return append(kept, err), nil // the oldest day would be the same one again
		case errors.Is(err, errNotOurTurn):
			return kept, nil
		case err != nil:
			return kept, outboxdb.Wrap("empty the DEFAULT child of "+f.table, err)
		}
	}
	return kept, nil
}

// forgetProgress drops the days of outbox_progress whose positions concern no row any more, the oldest first.
func (u *Upkeep) forgetProgress(ctx context.Context, retention time.Duration) error {
	for dropped := true; dropped; {
		err := u.retire(ctx, func(ctx context.Context, tx bun.Tx) error {
			return patiently(ctx, func() error {
				return tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
					err := u.box.Run.QueryRow(ctx, tx, dropProgress, []any{retention}, &dropped)
					if errors.Is(err, sql.ErrNoRows) {
						dropped = false
						return nil
					}
					return err
				})
			})
		})
		if errors.Is(err, errNotOurTurn) {
			return nil
		}
		if err != nil {
			return outboxdb.Wrap("drop a day of outbox_progress", err)
		}
	}
	// Days without a partition lie in the DEFAULT child and cannot be dropped.
	_, err := u.box.Run.Exec(ctx, u.box.DB, emptyProgress, retention)
	return outboxdb.Wrap("empty outbox_progress_default", err)
}

func (u *Upkeep) partition(f family) Partition {
	return Partition{log: f, published: u.box.Run.Text("{schema}.outbox_published")}
}

// retire runs fn in a transaction. There is one such transaction at a time, in all processes. The lock belongs to the transaction
// that also drops: a process that loses the one cannot do the other.
func (u *Upkeep) retire(ctx context.Context, fn func(context.Context, bun.Tx) error) error {
	return u.box.DB.RunInTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) error {
		var ours bool
		if err := u.box.Run.QueryRow(ctx, tx, lockRetention, nil, &ours); err != nil {
			return err
		}
		if !ours {
			return errNotOurTurn
		}
		if _, err := u.box.Run.Exec(ctx, tx, beUnhurried); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
}

// dropOne drops one day. Nothing of it is lost if it fails in the middle: the drop and the writes of
// BeforeDrop are one transaction.
func (u *Upkeep) dropOne(ctx context.Context, tx bun.Tx, p Partition) error {
	var there bool
	// Another process may have dropped the partition before this one got the lock.
	if err := u.box.Run.QueryRow(ctx, tx, p.log.in(isPartition), []any{p.Name}, &there); err != nil || !there {
		return err
	}
	// Only the log can have unpublished rows. The check saves the work of BeforeDrop; outbox_drop_partition
	// checks again under its lock.
	if p.log.table == logTable {
		var unsent bool
		if err := u.box.AdHoc().QueryRow(ctx, tx, fmt.Sprintf(hasUnsent, p.Name), nil, &unsent); err != nil || unsent {
			return err
		}
	}
	// A day without rows needs no archive.
	var some bool
	if err := u.box.AdHoc().QueryRow(ctx, tx, fmt.Sprintf(hasRows, p.Name), nil, &some); err != nil {
		return err
	}
	if some {
		if err := u.beforeDrop(ctx, tx, p); err != nil {
			return err
		}
	}
	return patiently(ctx, func() error {
		// The savepoint keeps the writes of BeforeDrop when the lock is not granted.
		return tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			var dropped bool
			err := u.box.Run.QueryRow(ctx, tx, dropPartition, []any{p.Day, p.log.table}, &dropped)
			if err == nil && !dropped {
				return errStays
			}
			return err
		})
	})
}

// emptyDay deletes the oldest expired day of the DEFAULT partition, as a whole, in the transaction in which BeforeDrop has archived it. If a part were
// deleted and BeforeDrop were called again, the new archive of the day would lack that part.
func (u *Upkeep) emptyDay(ctx context.Context, tx bun.Tx, f family, kept time.Duration) (found bool, err error) {
	p := u.partition(f)
	var day sql.NullTime
	if err := u.box.Run.QueryRow(ctx, tx, f.in(oldestInDefault), []any{kept}, &p.Name, &day); err != nil || !day.Valid {
		return false, err
	}
	p.Day = day.Time
	if err := u.beforeDrop(ctx, tx, p); err != nil {
		return true, err
	}
	_, err = u.box.Run.Exec(ctx, tx, f.in(dayOfDefault), p.Day, p.Day.AddDate(0, 0, 1))
	return true, err
}

// emptyDefault deletes in batches of 5,000 rows, so that each transaction is short and VACUUM can follow.
func (u *Upkeep) emptyDefault(ctx context.Context, f family, kept time.Duration) error {
	for {
		n, err := u.box.Run.Exec(ctx, u.box.DB, f.in(emptyDefault), kept)
		if err != nil || n == 0 {
			return outboxdb.Wrap("empty the DEFAULT child of "+f.table, err)
		}
	}
}

// keptError means that BeforeDrop has failed, so that the day stays.
type keptError struct {
	partition Partition
	err       error
}

func (e *keptError) Error() string {
	return fmt.Sprintf("outbox: outbox.Config.BeforeDrop of %s, %s: %v", e.partition.Name, e.partition.Day.Format(time.DateOnly), e.err)
}

func (e *keptError) Unwrap() error { return e.err }

// beforeDrop calls the service's function. Its error is logged here, because DropExpired goes on with other days first.
func (u *Upkeep) beforeDrop(ctx context.Context, tx bun.Tx, p Partition) error {
	if u.cfg.BeforeDrop == nil {
		return nil
	}
	p.DB = tx
	began := time.Now()
	err := u.cfg.BeforeDrop(ctx, p)
	if err == nil {
		return u.reportSlow(ctx, tx, p, time.Since(began))
	}
	u.box.Log.WarnContext(ctx, "oncebox: Config.BeforeDrop returned an error, so the expired partition is kept until the next try", "partition", p.Name,
		"day", p.Day.Format(time.DateOnly), "error", err)
	u.partitionsKept.Add(ctx, 1)
	return &keptError{p, err}
}

const hasWritten = `SELECT pg_current_xact_id_if_assigned() IS NOT NULL`

// slowArchive is how long a BeforeDrop that writes through Partition.DB may take. After that a warning is logged, because an open write keeps VACUUM
// and the relay from advancing.
const slowArchive = time.Minute

// reportSlow warns only if BeforeDrop has written: a transaction without a number of its own holds nothing up.
func (u *Upkeep) reportSlow(ctx context.Context, tx bun.Tx, p Partition, took time.Duration) error {
	if took < slowArchive {
		return nil
	}
	var written bool
	if err := u.box.Run.QueryRow(ctx, tx, hasWritten, nil, &written); err != nil || !written {
		return err
	}
	u.box.Log.WarnContext(ctx, "oncebox: BeforeDrop wrote through Partition.DB and took long: meanwhile VACUUM removed nothing and the relay's "+
		"low-water mark stood still; write at its end, or elsewhere", "partition", p.Name, "took", took)
	return nil
}

// patiently calls fn again while a table is in use, for a second or two.
func patiently(ctx context.Context, fn func() error) error {
	err := partition.Patiently(ctx, fn)
	if partition.InUse(err) {
		return fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return err
}
