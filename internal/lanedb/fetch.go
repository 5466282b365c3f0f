package lanedb

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// MaxFetch is the most rows that one fetch takes from one lane.
const MaxFetch = 500

// Cursor says where a fetch begins in one lane and how many rows it takes.
type Cursor struct {
	Lease    Lease
	Position Position
	// After is the number behind which a scan begins, if it is higher than Position.Sent. 0: the scan begins behind
	// Position.Sent. [Log.Fetch] uses it only if While names transactions.
	After int64
	// While has the ids of transactions that must be open. If one of them has ended, Fetch and the scans return nothing. All
	// cursors of a call that have a list have the same one.
	While []int64
	// Quota is the largest number of rows to take. It is at most [MaxFetch], and at most [FewRows] for
	// [Log.FetchFew].
	Quota int32
	// Taken is the highest number that was taken in its turn before. [Log.FetchFew] notes no lower number.
	Taken int64
}

// fetchRows reads the heads of several lanes.
//
// All rows come from one snapshot and from the head. A snapshot that shows a row of a key shows every earlier row of
// that key, so sorting by seq is enough; a remembered cursor would jump over rows that commit late.
//
// The inner LIMIT is a literal on purpose. With a parameter in its place the generic plan costs so much that every
// fetch is JIT-compiled, and with the filter beside it the planner sorts the whole backlog. It is also no larger than
// need be: a lane in which the planner expects fewer rows than the limit is read and sorted as a whole.
const (
	fetchFew  = fetchStart + "32" + fetchEnd
	fetchSome = fetchStart + "128" + fetchEnd
	fetchMany = fetchStart + "500" + fetchEnd
)

// asynchronous, first in a FROM, makes the statement's own commit not wait for the disk or for standbys.
const asynchronous = `(SELECT set_config('synchronous_commit', 'off', true)) asynchronous CROSS JOIN`

// areOpen, behind a list of transaction ids, is a condition. It is false if one of these transactions has ended for the
// snapshot of the statement.
//
// The rows of a transaction that is open for this snapshot are not visible, so a statement that begins behind them misses
// none of them. If the transaction has ended, all its rows are visible, and some may lie before the place where the
// statement begins.
const areOpen = `::text::xid8[] <@ ARRAY(SELECT pg_snapshot_xip(pg_current_snapshot()))`

// fetchStart: $1 lanes, $2 after, $3 ahead, $4 quota, $5 incarnation, $6 what is large, $7 while.
const fetchStart = `
SELECT ` + boundedStart + `$6` + boundedEnd + ` FROM (
	SELECT o.* FROM unnest($1::smallint[], $2::bigint[], $3::text[]::int8multirange[], $4::int[]) c(lane, after, ahead, quota)
	CROSS JOIN LATERAL (
		SELECT * FROM (
			SELECT {columns} FROM {schema}.outbox o
			WHERE o.lane = c.lane AND o.seq > c.after AND NOT o.seq <@ c.ahead ORDER BY o.seq LIMIT `

const fetchEnd = `) x
		ORDER BY x.seq LIMIT c.quota) o
	WHERE ` + sameServer + `$5::text AND $7` + areOpen + `) f`

// Fetch reads the next rows of the lanes, ordered by lane and sequence. The rows stay where they are until they are
// settled. Before any of them is published, [Log.Take] must be called, which reports the lanes that are still held.
// All payloads together are within bytes, but the first row comes whatever its size; 0: there is no bound. The last
// row of a lane may be cut, because it did not fit, see [outboxdb.Row].
func (s Log) Fetch(ctx context.Context, cursors []Cursor, bytes int64) ([]outboxdb.Row, error) {
	quota := make([]int32, len(cursors))
	most, total := int32(0), 0
	for i, c := range cursors {
		quota[i] = min(c.Quota, MaxFetch)
		most = max(most, quota[i])
		total += int(quota[i])
	}
	statement := fetchMany
	switch {
	case most <= 32:
		statement = fetchFew
	case most <= 128:
		statement = fetchSome
	}
	from, while := shortcuts(cursors)
	lanes, after, ahead, incarnation := placed(from)
	out, err := s.rows(ctx, total, bytes, nil, statement, lanes, after, ahead, quota, incarnation, small(bytes, total), while)
	return out, outboxdb.Wrap("fetch rows", err)
}

// placed turns cursors of one server into the arrays that unnest wants.
func placed(cursors []Cursor) (lanes []int16, sent []int64, ahead []string, incarnation string) {
	lanes, sent, ahead = make([]int16, len(cursors)), make([]int64, len(cursors)), make([]string, len(cursors))
	for i, c := range cursors {
		lanes[i], sent[i], ahead[i], incarnation = c.Lease.Lane, c.Position.Sent, c.Position.ranges(), c.Lease.Incarnation
	}
	return lanes, sent, ahead, incarnation
}

// shortcuts returns cursors whose positions are where the statement begins, and the transactions that must be open for
// it. Numbers that a position lists before that place are left out, because the server needs 2 ms to read a list of
// 500 numbers.
func shortcuts(cursors []Cursor) (from []Cursor, while string) {
	from, while = slices.Clone(cursors), "{}"
	for i := range from {
		if c := &from[i]; len(c.While) > 0 {
			c.Position, while = c.Position.Advance(c.After), list(c.While)
		}
	}
	return from, while
}

// rows runs a statement that returns at most most rows of a bounded read, and sorts its rows by lane and sequence. To
// sort here is cheaper than in the server, which would sort the payloads along.
func (s Log) rows(ctx context.Context, most int, bytes int64, t *taking, statement string, args ...any) ([]outboxdb.Row, error) {
	out, err := s.read(ctx, most, t, statement, args...)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b outboxdb.Row) int {
		return compareIDs(outboxdb.RowID{Lane: a.Lane, Seq: a.Sequence}, outboxdb.RowID{Lane: b.Lane, Seq: b.Sequence})
	})
	out, err = s.bounded(ctx, out, bytes)
	for i := range out {
		out[i].Size = 0 // rows that are read in other ways have no size, and are compared with these
	}
	return out, err
}

func (s Log) read(ctx context.Context, most int, t *taking, statement string, args ...any) (out []outboxdb.Row, err error) {
	text, err := s.box.Run.TextFor(ctx, s.box.DB, statement)
	if err != nil {
		return nil, err
	}
	native, err := s.box.Run.MayBeNative(ctx, s.box.DB)
	if err != nil {
		return nil, err
	}
	if native && !s.box.Pooler { // through a pooler the values come as text
		native, err := pgsql.Native(ctx, s.box.DB, func(conn *pgx.Conn) error {
			rows, err := s.box.Run.QueryNative(ctx, conn, text, args...)
			if err == nil {
				out, err = outboxdb.DecodeRows(rows, most, t.decode)
			}
			return err
		})
		if native || err != nil {
			return out, err
		}
	}
	return outboxdb.ScanSized(s.box.Run.Query(ctx, s.box.DB, statement, args...), t.scan)
}

// FewRows is the most rows that [Log.FetchFew] takes from one lane.
const FewRows = 32

// fetchAndTake is fetchFew and takeRows in one statement: $1 to $7 as in fetchStart, $8 owner, $9 epochs, $10 taken.
// Both use the same snapshot. A lane that is lost after that snapshot is the same case as a lane that is lost after
// takeRows. The statement assigns a transaction id only if there are rows.
const fetchAndTake = `
WITH f AS MATERIALIZED (` + fetchFew + `),
mine AS MATERIALIZED (
	SELECT l.lane, c.taken FROM ` + asynchronous + ` {schema}.outbox_lane l
	JOIN unnest($1::smallint[], $9::bigint[], $10::bigint[]) c(lane, epoch, taken) USING (lane, epoch) WHERE l.owner = $8),
noted AS (
	INSERT INTO {schema}.outbox_claim (lane, upto)
	SELECT m.lane, greatest(max(f.seq), max(m.taken)) FROM f JOIN mine m USING (lane) GROUP BY m.lane)
SELECT f.*, f.lane IN (SELECT m.lane FROM mine m), ` + markOfTake + `
FROM f`

// FetchFew is [Log.Fetch] and [Log.Take] at once, for lanes that have few rows. It saves one of three round trips to
// the database. It carries the rows through the server once more, which costs more than it saves if there are many
// rows. Rows of a lane that is missing in held must not be published. If there are no rows, nothing is noted, and
// held and the mark are empty.
func (s Log) FetchFew(ctx context.Context, cursors []Cursor, bytes int64) (rows []outboxdb.Row, held map[int16]bool, mark Watermark, err error) {
	leases := make([]Lease, len(cursors))
	quota, taken := make([]int32, len(cursors)), make([]int64, len(cursors))
	for i, c := range cursors {
		leases[i], quota[i], taken[i] = c.Lease, min(c.Quota, FewRows), c.Taken
	}
	owner, _, epochs := split(leases)
	from, while := shortcuts(cursors)
	lanes, after, ahead, incarnation := placed(from)
	most := FewRows * len(cursors)
	t := taking{held: map[int16]bool{}}
	rows, err = s.rows(ctx, most, bytes, &t, fetchAndTake, lanes, after, ahead, quota, incarnation, small(bytes, most), while, owner, epochs, taken)
	return rows, t.held, t.mark, outboxdb.Wrap("fetch and take rows", err)
}
