package state

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/internal/history"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// countTraffic reads the sequence, the totals of the lanes, and PostgreSQL's counters of inserts and deletes. A refused
// event moves from one table to another, which does not count as traffic.
const countTraffic = `
SELECT clock_timestamp(), coalesce(pg_sequence_last_value('{schema}.outbox_seq'), 0),
	(SELECT sum(c.total) FROM {schema}.outbox_cursor c)
		+ (SELECT sum(pg_stat_get_tuples_deleted(i.inhrelid)) FROM pg_inherits i WHERE i.inhparent = '{schema}.outbox'::regclass)
		+ pg_stat_get_tuples_deleted('{schema}.outbox_held'::regclass)
		+ pg_stat_get_tuples_deleted('{schema}.outbox_dead'::regclass)
		- pg_stat_get_tuples_inserted('{schema}.outbox_held'::regclass) - pg_stat_get_tuples_inserted('{schema}.outbox_dead'::regclass)`

// Traffic is the number of events that have gone through the outbox. The difference of two readings gives a rate.
// Rolled-back events count as recorded. PostgreSQL counts deletes a second late. It starts from 0 after a crash, and forgets the counts of a day when
// the day's partition is dropped.
type Traffic struct {
	// At is the time of the reading, by the clock of the database.
	At time.Time
	// Recorded counts events that were stored, Left events that were published, discarded or cancelled.
	Recorded, Left int64
}

// PerSecond returns the rates since an earlier reading. ok is false if there is no rate: PostgreSQL has started to
// count again, or the clock has not advanced.
func (t Traffic) PerSecond(since Traffic) (recorded, left float64, ok bool) {
	took := t.At.Sub(since.At).Seconds()
	if since.At.IsZero() || took <= 0 || t.Recorded < since.Recorded {
		return 0, 0, false
	}
	return float64(t.Recorded-since.Recorded) / took, max(0, float64(t.Left-since.Left)/took), true
}

// Traffic reads the counters. It costs the same however many rows the tables have.
func (s *Reader) Traffic(ctx context.Context) (t Traffic, err error) {
	err = s.box.Run.QueryRow(ctx, s.box.DB, countTraffic, nil, &t.At, &t.Recorded, &t.Left)
	return t, outboxdb.Wrap("count traffic", err)
}

// History returns how backlog, age, rates, refused events and dead letters went over the last span, up to 24 hours. It is empty if no relay ran, or
// outbox.Config.NoHistory is set.
func (s *Reader) History(ctx context.Context, span time.Duration) (operator.History, error) {
	all, err := history.Read(ctx, s.box.AdHoc(), s.box.DB, operator.PartOutbox, span)
	return all[""], outboxdb.Wrap("read the history", err)
}

// Loads returns how many events each tenant has recorded since a time, by the clock of the database, the largest load first, 200 at most. It counts events
// of the given topics, without any topic all events. It counts published events too, as long as they are kept (outbox.Config.Retention), but not
// events that were refused, delayed or given up. It reads the latest [Looked] events of each lane, however many there are.
func (s *Reader) Loads(ctx context.Context, since time.Time, topics ...string) ([]Load, error) {
	list, err := readLoads(ctx, s.box, since, append([]string{}, topics...)) // an empty array, and not NULL
	return list, outboxdb.Wrap("read who records how much", err)
}

// lastMove finds the latest action of an operator after which events leave that had waited.
const lastMove = `
SELECT at FROM {schema}.oncebox_audit WHERE part = 'outbox' AND at > (SELECT clock_timestamp()) - interval '5 minutes'
	AND action IN ('resume', 'replay', 'edit', 'reschedule') ORDER BY at DESC LIMIT 1`

// onTheirWay is how long events take to reach the broker after such an action, if few wait: the relays notice it when they renew their leases.
const onTheirWay = 5 * time.Second

// Moved returns until when an operator last set events in motion that had waited: a tenant was resumed, or a dead letter or a delayed event was changed, and a
// few seconds later they are at the broker. A count of the broker that is older says nothing about them. Zero: not within the last five minutes.
func (s *Reader) Moved(ctx context.Context) (time.Time, error) {
	all, err := pgsql.Collect(s.box.AdHoc().Query(ctx, s.box.DB, lastMove), func(scan pgsql.Scan, at *time.Time) error { return scan(at) })
	if err != nil || len(all) == 0 {
		return time.Time{}, outboxdb.Wrap("look for the last action of an operator", err)
	}
	return all[0].Add(onTheirWay), nil
}
