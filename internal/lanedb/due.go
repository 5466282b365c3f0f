package lanedb

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// dueRows finds held rows whose time has come. Followers wait at infinity, so that a long queue behind a refused head
// costs nothing here.
//
// The time is asked for once, in a sub-select: compared with a volatile function, retry_after bounds no index scan, and
// each look would read all the rows that wait at infinity.
const dueRows = withinStart + `
	SELECT h.* FROM unnest($2::smallint[]) c(held_lane) CROSS JOIN LATERAL (
		SELECT * FROM {schema}.outbox_held h
		WHERE h.lane = c.held_lane AND h.retry_after <= (SELECT clock_timestamp()) ORDER BY h.retry_after LIMIT 100) h
	ORDER BY retry_after LIMIT 100` + withinEnd

// Between withinStart and withinEnd stands a query for held rows. Of its rows the first ones come, in the order in which they
// became due, as long as all payloads together are within $1 bytes; the first one comes whatever its size. A payload that does
// not come is not read either: its size is in the row.
const (
	withinStart = `
SELECT ` + outboxdb.RowColumns + `, retry_after, found FROM (
	SELECT x.*, count(*) OVER () AS found, row_number() OVER w AS n, sum(octet_length(payload)) OVER w AS bytes FROM (`
	withinEnd = `) x
	WINDOW w AS (ORDER BY retry_after, lane, seq ROWS UNBOUNDED PRECEDING)) x
WHERE n = 1 OR bytes <= $1::bigint ORDER BY n`
)

// MaxDue is the most rows that [Held.Due] returns.
const MaxDue = 100

// DueRow is a held row that may be tried.
type DueRow struct {
	outboxdb.Row
	RetryAfter time.Time
}

// Due returns held rows that may be tried now: unordered ones, and the heads of blocked keys. It returns at most
// [MaxDue] rows, and no more than bytes of payload unless a single row has more; 0: there is no bound. all is true if
// no other row is due.
func (s Held) Due(ctx context.Context, lanes []int16, bytes int64) (due []DueRow, all bool, err error) {
	due, found, err := s.heldRows(ctx, "find due rows", dueRows, bytes, lanes)
	return due, found < MaxDue && found == len(due), err
}

// heldRows returns as many rows as fit into the bytes, and how many the query found.
func (s Held) heldRows(ctx context.Context, what, statement string, bytes int64, args ...any) (out []DueRow, found int, err error) {
	if bytes <= 0 {
		bytes = math.MaxInt64
	}
	rows := s.box.Run.Query(ctx, s.box.DB, statement, append([]any{bytes}, args...)...)
	out, err = pgsql.Collect(rows, func(scan pgsql.Scan, h *DueRow) error { return outboxdb.ScanRow(scan, &h.Row, &h.RetryAfter, &found) })
	if err != nil || len(out) == 0 {
		return nil, found, outboxdb.Wrap(what, err)
	}
	out, err = s.uncancelled(ctx, out)
	return out, found, outboxdb.Wrap(what, err)
}

// lookDue looks at the next due rows of each lane, behind the rows that were seen already, without their payloads.
// The caller compares topics and tenants, and remembers how far it got. With a filter here, each look would read all
// rows of a topic in trouble from the first one.
//
// It is written with a comparison of rows for the reason given at outboxdb.HeadOfKey, with a literal for that given at fetchRows.
const lookDue = `
SELECT c.lane, h.seq, h.retry_after, h.topic, h.tenant_id
FROM unnest($1::smallint[], $2::timestamptz[], $3::bigint[]) c(lane, after, seq) CROSS JOIN LATERAL (
	SELECT x.lane, x.seq, x.retry_after, x.topic, x.tenant_id FROM {schema}.outbox_held x
	WHERE (x.lane, x.retry_after, x.seq) > (c.lane, c.after, c.seq) ORDER BY x.lane, x.retry_after, x.seq LIMIT 500) h
WHERE h.lane = c.lane AND h.retry_after <= (SELECT clock_timestamp())`

// DueInfo describes a held row in the answer of [Held.ScanDue].
type DueInfo struct {
	outboxdb.RowID
	RetryAfter    time.Time
	Topic, Tenant string
}

// ScanDue looks at the next [ScanWindow] due rows of each lane that come after the given ones. They are ordered by the
// time at which they became due. The zero time is before all of them.
func (s Held) ScanDue(ctx context.Context, after []DueInfo) ([]DueInfo, error) {
	lanes, times, seqs := make([]int16, len(after)), make([]time.Time, len(after)), make([]int64, len(after))
	for i, a := range after {
		lanes[i], times[i], seqs[i] = a.Lane, a.RetryAfter, a.Seq
	}
	out, err := pgsql.Collect(s.box.Run.Query(ctx, s.box.DB, lookDue, lanes, times, seqs), func(scan pgsql.Scan, g *DueInfo) error {
		return scan(&g.Lane, &g.Seq, &g.RetryAfter, &g.Topic, &g.Tenant)
	})
	slices.SortFunc(out, func(a, b DueInfo) int {
		return cmp.Or(a.RetryAfter.Compare(b.RetryAfter), cmp.Compare(a.Seq, b.Seq))
	})
	return out, outboxdb.Wrap("look for due rows", err)
}

const pickDue = withinStart + `
	SELECT h.* FROM unnest($2::smallint[], $3::bigint[]) a(held_lane, held_seq)
	JOIN {schema}.outbox_held h ON h.lane = a.held_lane AND h.seq = a.held_seq
	WHERE retry_after <= (SELECT clock_timestamp())` + withinEnd

// FetchDueRows reads rows that [Held.ScanDue] has found, unless they have gone meanwhile. bytes is that of [Held.Due].
func (s Held) FetchDueRows(ctx context.Context, ids []outboxdb.RowID, bytes int64) ([]DueRow, error) {
	lanes, seqs := splitIDs(ids)
	due, _, err := s.heldRows(ctx, "read due rows", pickDue, bytes, lanes, seqs)
	return due, err
}

// nextDue looks at one index entry per lane.
const nextDue = `
SELECT extract(epoch FROM min(h.retry_after) - clock_timestamp())::float8, clock_timestamp()
FROM unnest($1::smallint[]) c(lane) CROSS JOIN LATERAL (
	SELECT retry_after FROM {schema}.outbox_held h
	WHERE h.lane = c.lane AND h.retry_after > $2::timestamptz AND h.retry_after < 'infinity'
	ORDER BY h.retry_after LIMIT 1) h`

// Upcoming says when the next held row of some lanes becomes due.
type Upcoming struct {
	Some  bool          // there is such a row
	In    time.Duration // the time until then; 0 or negative: the row is due already
	Asked time.Time     // the time of the answer, by the clock of the database
}

// NextDue returns when the next held row of the lanes becomes due. Rows that were due at the time after already, by
// the clock of the database, are left out: the caller has seen them. after must be Asked of the question before the
// last [Held.Due], or the zero time. Then no row is missed that became due between Due and this question, however
// long the two were on their way.
func (s Held) NextDue(ctx context.Context, lanes []int16, after time.Time) (Upcoming, error) {
	var (
		next    Upcoming
		seconds *float64
	)
	if err := s.box.Run.QueryRow(ctx, s.box.DB, nextDue, []any{lanes, after}, &seconds, &next.Asked); err != nil {
		return Upcoming{}, outboxdb.Wrap("find the next due row", err)
	}
	if seconds != nil {
		next.Some, next.In = true, time.Duration(*seconds*float64(time.Second))
	}
	return next, nil
}
