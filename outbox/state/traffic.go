package state

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
)

// countTraffic reads the sequence, the totals of the lanes, and what the server counts of inserts and deletes. An event that is refused goes from
// one table to another, which is no traffic.
const countTraffic = `
SELECT clock_timestamp(), coalesce(pg_sequence_last_value('{schema}.outbox_seq'), 0),
	(SELECT sum(c.total) FROM {schema}.outbox_cursor c)
		+ (SELECT sum(pg_stat_get_tuples_deleted(i.inhrelid)) FROM pg_inherits i WHERE i.inhparent = '{schema}.outbox'::regclass)
		+ pg_stat_get_tuples_deleted('{schema}.outbox_held'::regclass)
		+ pg_stat_get_tuples_deleted('{schema}.outbox_dead'::regclass)
		- pg_stat_get_tuples_inserted('{schema}.outbox_held'::regclass) - pg_stat_get_tuples_inserted('{schema}.outbox_dead'::regclass)`

// Traffic is how many events have gone through the outbox: for a rate, from the difference of two of them. What was rolled back counts as recorded.
// The server counts deletes a second late, begins anew after a crash, and forgets those of a day when its partition is dropped.
type Traffic struct {
	// At is the time of the database.
	At time.Time
	// Recorded events came, Left were published, discarded or cancelled.
	Recorded, Left int64
}

// PerSecond is the rate since an earlier reading. ok is false if there is none: the server has begun to count anew, or the clock has not gone on.
func (t Traffic) PerSecond(since Traffic) (recorded, left float64, ok bool) {
	took := t.At.Sub(since.At).Seconds()
	if since.At.IsZero() || took <= 0 || t.Recorded < since.Recorded {
		return 0, 0, false
	}
	return float64(t.Recorded-since.Recorded) / took, max(0, float64(t.Left-since.Left)/took), true
}

// Traffic reads what the server has counted. It costs the same whatever is in the tables.
func (s *Reader) Traffic(ctx context.Context) (t Traffic, err error) {
	err = s.box.Run.QueryRow(ctx, s.box.DB, countTraffic, nil, &t.At, &t.Recorded, &t.Left)
	return t, outboxdb.Wrap("count traffic", err)
}
