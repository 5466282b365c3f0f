package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// partitionDaysAhead is how many daily children of outbox_sent are made in advance.
const partitionDaysAhead = 7

// Partition is a day of published rows that is about to be dropped, as [Config.BeforeDrop] gets it.
type Partition struct {
	// Name is the table, with its schema and quoted where need be: ready for SQL. It is the child of the day, or the DEFAULT
	// child with rows of other days as well, if there was none when they were sent.
	Name string
	// Day is the UTC day, at midnight.
	Day time.Time
	// DB is the transaction that drops it. What is written through DB is there if and only if the partition is gone. From the
	// first write to the end, VACUUM removes nothing in the whole database and the relay's low-water mark stands still, as with
	// any transaction that writes: read first, write briefly at the end.
	DB bun.IDB
}

// Select is a query for the rows of the day, without columns yet: they are those of outbox_sent. Read them to the end,
// or close them, before BeforeDrop returns.
func (p Partition) Select() *bun.SelectQuery {
	return p.DB.NewSelect().TableExpr(p.Name).Where("sent_at >= ? AND sent_at < ?", p.Day, p.Day.AddDate(0, 0, 1))
}

const (
	makePartitions = `
SELECT {schema}.outbox_make_partition((clock_timestamp() AT TIME ZONE 'UTC')::date + $1::int)`

	// expiredPartitions finds the children of the days that ended before the retention.
	expiredPartitions = `
SELECT format('%I.%I', n.nspname, c.relname), to_date(right(c.relname, 8), 'YYYYMMDD')
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE i.inhparent = '{schema}.outbox_sent'::regclass AND c.relname ~ '^outbox_sent_[0-9]{8}$'
	AND (to_date(right(c.relname, 8), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC' <= clock_timestamp() - $1::interval
ORDER BY c.relname`
	isPartition = `
SELECT EXISTS (SELECT FROM pg_inherits WHERE inhparent = '{schema}.outbox_sent'::regclass AND inhrelid = to_regclass($1::text))`
	dropPartition = `SELECT {schema}.outbox_drop_partition($1::date)`

	// lockRetention lets one process at a time decide about the end of partitions.
	lockRetention = `SELECT pg_try_advisory_xact_lock(hashtextextended('oncebox.outbox.retention', '{schema}.outbox_sent'::regclass::oid::bigint))`
	// beUnhurried keeps the server from ending a transaction that is idle because BeforeDrop takes its time. While idle it
	// holds no snapshot, so it keeps VACUUM from nothing. Not every version knows both settings.
	beUnhurried = `
SELECT count(set_config(name, '0', true)) FROM pg_settings
WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')`

	// emptyDefault removes what went to the DEFAULT child, in batches.
	emptyDefault = `
DELETE FROM {schema}.outbox_sent_default WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM {schema}.outbox_sent_default WHERE sent_at < clock_timestamp() - $1::interval LIMIT 5000))`

	// oldestInDefault finds the oldest day in the DEFAULT child that ended before the retention.
	oldestInDefault = `
SELECT format('%I.%I', n.nspname, c.relname), (SELECT (min(sent_at) AT TIME ZONE 'UTC')::date FROM {schema}.outbox_sent_default
	WHERE sent_at < date_trunc('day', (clock_timestamp() - $1::interval) AT TIME ZONE 'UTC') AT TIME ZONE 'UTC')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = '{schema}.outbox_sent_default'::regclass`
	dayOfDefault = `DELETE FROM {schema}.outbox_sent_default WHERE sent_at >= $1::timestamptz AND sent_at < $2::timestamptz`
)

// EnsurePartitions makes the children of outbox_sent for today and the next days. It is safe in any number of
// processes. Rows of a day without a child go to the DEFAULT child, so nothing stops if this fails; but a child that is
// made later has to move them under a lock, so it comes before the first settle.
func (s *Store) EnsurePartitions(ctx context.Context) error {
	if p, err := s.policy(ctx); err != nil || p.retention == NoRetention {
		return err
	}
	var errs []error
	for day := range partitionDaysAhead + 1 {
		// Each in a transaction of its own: the lock on the parent is held as shortly as possible.
		if _, err := s.sql.Exec(ctx, s.db, makePartitions, day); err != nil {
			errs = append(errs, err)
		}
	}
	return wrap("make partitions of outbox_sent", errors.Join(errs...))
}

// ErrBusy means that a table was in use and the call is to be repeated in a while.
var ErrBusy = errors.New("outbox: the table is in use, try again")

// errNotOurTurn means that another process drops partitions.
var errNotOurTurn = errors.New("outbox: another process is at it")

// DropExpired drops what is older than the retention, the oldest first, each day after [Config.BeforeDrop] agreed to it.
// Where BeforeDrop failed the day stays; the others go on, and the errors are returned.
//
// A lock that somebody else holds is not waited for for longer than 50 ms, because settles would wait behind it. It is
// tried again a few times; then [ErrBusy] says that it is to be tried again later. While another process drops
// partitions, it does nothing.
func (s *Store) DropExpired(ctx context.Context) error {
	kept, err := s.dropExpired(ctx)
	return errors.Join(append(kept, err)...)
}

// dropExpired returns the errors of BeforeDrop apart from all others.
func (s *Store) dropExpired(ctx context.Context) (kept []error, err error) {
	rule, err := s.policy(ctx)
	if err != nil || rule.retention < 0 || rule.archived && s.cfg.BeforeDrop == nil {
		return nil, err
	}
	parts, err := s.expired(ctx, rule.retention)
	if err != nil {
		return nil, wrap("look for expired partitions", err)
	}
	for _, p := range parts {
		err := s.retire(ctx, func(ctx context.Context, tx bun.Tx) error { return s.dropOne(ctx, tx, p) })
		switch k := (*keptError)(nil); {
		case errors.As(err, &k):
			kept = append(kept, err)
		case errors.Is(err, errNotOurTurn):
			return kept, nil
		case err != nil:
			return kept, wrap("drop "+p.Name, err)
		}
	}
	if s.cfg.BeforeDrop == nil {
		return kept, s.emptyDefault(ctx, rule.retention)
	}
	for more := true; more; {
		err := s.retire(ctx, func(ctx context.Context, tx bun.Tx) (err error) {
			more, err = s.emptyDay(ctx, tx, rule.retention)
			return err
		})
		switch k := (*keptError)(nil); {
		case errors.As(err, &k):
			return append(kept, err), nil // the next oldest would be the same day
		case errors.Is(err, errNotOurTurn):
			return kept, nil
		case err != nil:
			return kept, wrap("empty outbox_sent_default", err)
		}
	}
	return kept, nil
}

func (s *Store) expired(ctx context.Context, kept time.Duration) (parts []Partition, err error) {
	rows, err := s.sql.Query(ctx, s.db, expiredPartitions, kept)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var p Partition
		if err := rows.Scan(&p.Name, &p.Day); err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, rows.Err()
}

// retire runs fn in a transaction. There is one such transaction at a time, in all processes. The lock belongs to the transaction
// that also drops: a process that loses the one cannot do the other.
func (s *Store) retire(ctx context.Context, fn func(context.Context, bun.Tx) error) error {
	return s.db.RunInTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) error {
		var ours bool
		if err := s.sql.QueryRow(ctx, tx, lockRetention, nil, &ours); err != nil {
			return err
		}
		if !ours {
			return errNotOurTurn
		}
		if _, err := s.sql.Exec(ctx, tx, beUnhurried); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
}

func (s *Store) dropOne(ctx context.Context, tx bun.Tx, p Partition) error {
	var there bool
	// Another process may have dropped it between the look and the lock.
	if err := s.sql.QueryRow(ctx, tx, isPartition, []any{p.Name}, &there); err != nil || !there {
		return err
	}
	if err := s.beforeDrop(ctx, tx, p); err != nil {
		return err
	}
	return patiently(ctx, func() error {
		// A savepoint: a lock that was not given must not cost what BeforeDrop has done.
		return tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			_, err := s.sql.Exec(ctx, tx, dropPartition, p.Day)
			return err
		})
	})
}

// emptyDay deletes the oldest expired day of the DEFAULT child, all of it in the transaction in which BeforeDrop saw it:
// an archive that is written again after half of the day was deleted would lose that half.
func (s *Store) emptyDay(ctx context.Context, tx bun.Tx, kept time.Duration) (found bool, err error) {
	var p Partition
	var day sql.NullTime
	if err := s.sql.QueryRow(ctx, tx, oldestInDefault, []any{kept}, &p.Name, &day); err != nil || !day.Valid {
		return false, err
	}
	p.Day = day.Time
	if err := s.beforeDrop(ctx, tx, p); err != nil {
		return true, err
	}
	_, err = s.sql.Exec(ctx, tx, dayOfDefault, p.Day, p.Day.AddDate(0, 0, 1))
	return true, err
}

func (s *Store) emptyDefault(ctx context.Context, kept time.Duration) error {
	for {
		n, err := s.sql.Exec(ctx, s.db, emptyDefault, kept)
		if err != nil || n == 0 {
			return wrap("empty outbox_sent_default", err)
		}
	}
}

// keptError means that BeforeDrop refused.
type keptError struct {
	partition Partition
	err       error
}

func (e *keptError) Error() string {
	return fmt.Sprintf("outbox: Config.BeforeDrop of %s, %s: %v", e.partition.Name, e.partition.Day.Format(time.DateOnly), e.err)
}

func (e *keptError) Unwrap() error { return e.err }

func (s *Store) beforeDrop(ctx context.Context, tx bun.Tx, p Partition) error {
	if s.cfg.BeforeDrop == nil {
		return nil
	}
	p.DB = tx
	began := time.Now()
	err := s.cfg.BeforeDrop(ctx, p)
	if err == nil {
		return s.reportSlow(ctx, tx, p, time.Since(began))
	}
	s.log.WarnContext(ctx, "oncebox: BeforeDrop failed, the partition stays until the next try", "partition", p.Name,
		"day", p.Day.Format(time.DateOnly), "error", err)
	s.partitionsKept.Add(ctx, 1)
	return &keptError{p, err}
}

// newPartitionsKept makes the counter, if there is a function that can fail.
func newPartitionsKept(c *Config) metric.Int64Counter {
	if c.BeforeDrop == nil {
		return noop.Int64Counter{}
	}
	return otelx.Started(otelx.Meter(c.MeterProvider, "outbox"), "oncebox.outbox.partitions_kept",
		"Expired partitions that were kept because Config.BeforeDrop failed", nil)
}

const hasWritten = `SELECT pg_current_xact_id_if_assigned() IS NOT NULL`

// slowArchive is for how long a BeforeDrop may write through Partition.DB before it is told that this costs others something.
const slowArchive = time.Minute

func (s *Store) reportSlow(ctx context.Context, tx bun.Tx, p Partition, took time.Duration) error {
	if took < slowArchive {
		return nil
	}
	var written bool
	if err := s.sql.QueryRow(ctx, tx, hasWritten, nil, &written); err != nil || !written {
		return err
	}
	s.log.WarnContext(ctx, "oncebox: BeforeDrop wrote through Partition.DB and took long: meanwhile VACUUM removed nothing and the relay's "+
		"low-water mark stood still; write at its end, or elsewhere", "partition", p.Name, "took", took)
	return nil
}

// patiently calls fn again while a table is in use, for a few seconds.
func patiently(ctx context.Context, fn func() error) error {
	for try := 1; ; try++ {
		err := fn()
		switch pgsql.Code(err) {
		case pgsql.CodeLockNotAvailable, pgsql.CodeDeadlock:
		default:
			return err
		}
		if try == busyTries {
			return ErrBusy
		}
		if backoff.Wait(ctx, busyPause) != nil {
			return errors.Join(ErrBusy, ctx.Err())
		}
	}
}

const (
	busyTries = 5
	busyPause = time.Second
)
