package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// partitionDaysAhead is how many daily children of outbox_sent are made in advance.
const partitionDaysAhead = 7

const (
	makePartitions = `
SELECT {schema}.outbox_make_partition((clock_timestamp() AT TIME ZONE 'UTC')::date + $1::int)`
	dropPartitions = `SELECT {schema}.outbox_drop_partitions(clock_timestamp() - $1::interval)`
	// emptyDefault removes what went to the DEFAULT child, in batches.
	emptyDefault = `
DELETE FROM {schema}.outbox_sent_default WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM {schema}.outbox_sent_default WHERE sent_at < clock_timestamp() - $1::interval LIMIT 5000))`
)

// EnsurePartitions makes the children of outbox_sent for today and the next days. It is safe in any number of
// processes. Rows of a day without a child go to the DEFAULT child, so nothing stops if this fails; but a child that is
// made later has to move them under a lock, so it comes before the first settle.
func (s *Store) EnsurePartitions(ctx context.Context) error {
	if s.cfg.Retention == NoRetention {
		return nil
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

// DropExpired drops what is older than the retention. A lock that somebody else holds is not waited for for longer than
// 50 ms, because settles would wait behind it: then [ErrBusy] says that it is to be tried again.
func (s *Store) DropExpired(ctx context.Context) error {
	if s.cfg.Retention < 0 {
		return nil
	}
	_, err := s.sql.Exec(ctx, s.db, dropPartitions, s.cfg.Retention)
	if pgsql.Code(err) == pgsql.CodeLockNotAvailable {
		return ErrBusy
	}
	if err != nil {
		return wrap("drop partitions of outbox_sent", err)
	}
	for {
		n, err := s.sql.Exec(ctx, s.db, emptyDefault, s.cfg.Retention)
		if err != nil || n == 0 {
			return wrap("empty outbox_sent_default", err)
		}
	}
}

// ErrBusy means that a table was in use and the call is to be repeated in a while.
var ErrBusy = errors.New("outbox: the table is in use, try again")

// Clean ensures the partitions ahead and drops the expired ones, once. [ErrBusy] is tried again a few times.
func (s *Store) Clean(ctx context.Context) error {
	err := s.EnsurePartitions(ctx)
	for range 5 {
		drop := s.DropExpired(ctx)
		if !errors.Is(drop, ErrBusy) {
			return errors.Join(err, drop)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
	return errors.Join(err, ErrBusy)
}
