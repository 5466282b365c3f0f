package outbox

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// MaxFetch is the most rows that one fetch takes from one lane.
const MaxFetch = 500

// Cursor says where a fetch begins in one lane and how many rows it takes.
type Cursor struct {
	Lease    Lease
	Position Position
	// After is a sequence beyond Position.Sent after which a scan begins. 0: at Position.Sent. [Relay.Fetch] begins there only if While
	// names transactions.
	After int64
	// While are the ids of transactions that have to be open, else Fetch returns nothing. All cursors of a fetch that have some have the same ones.
	While []int64
	// Quota is at most [MaxFetch], and [FewRows] for [Relay.FetchFew].
	Quota int32
	// Taken is the highest number that was taken in its turn before. [Relay.FetchFew] notes no lower one.
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

// fetchStart: $1 lanes, $2 after, $3 ahead, $4 quota, $5 incarnation, $6 what is large, $7 while.
//
// A transaction that is open for this snapshot shows none of its rows, so a fetch that begins behind them misses none. One that has ended shows
// them all, and they may lie before.
const fetchStart = `
SELECT ` + boundedStart + `$6` + boundedEnd + ` FROM (
	SELECT o.* FROM unnest($1::smallint[], $2::bigint[], $3::text[]::int8multirange[], $4::int[]) c(lane, after, ahead, quota)
	CROSS JOIN LATERAL (
		SELECT * FROM (
			SELECT {columns} FROM {schema}.outbox o
			WHERE o.lane = c.lane AND o.seq > c.after AND NOT o.seq <@ c.ahead ORDER BY o.seq LIMIT `

const fetchEnd = `) x
		ORDER BY x.seq LIMIT c.quota) o
	WHERE ` + sameServer + `$5::text AND $7::text::xid8[] <@ ARRAY(SELECT pg_snapshot_xip(pg_current_snapshot()))) f`

// Fetch reads the next rows of the lanes, ordered by lane and sequence. The rows stay where they are until they are settled. [Relay.Take]
// tells whether the lanes are still held, and comes before anything is published. All payloads together are within bytes, but the first row
// comes whatever its size; 0: there is no bound. The last row of a lane may be cut, because it did not fit, see [Row].Cut.
func (s Relay) Fetch(ctx context.Context, cursors []Cursor, bytes int64) ([]Row, error) {
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
	return out, wrap("fetch rows", err)
}

// placed turns cursors of one server into the arrays that unnest wants.
func placed(cursors []Cursor) (lanes []int16, sent []int64, ahead []string, incarnation string) {
	lanes, sent, ahead = make([]int16, len(cursors)), make([]int64, len(cursors)), make([]string, len(cursors))
	for i, c := range cursors {
		lanes[i], sent[i], ahead[i], incarnation = c.Lease.Lane, c.Position.Sent, c.Position.ranges(), c.Lease.Incarnation
	}
	return lanes, sent, ahead, incarnation
}

// shortcuts returns cursors whose positions are where the fetch begins, and the transactions that have to be open for it. What a position lists before
// that is left out: to read a list of 500 numbers takes the server 2 ms.
func shortcuts(cursors []Cursor) (from []Cursor, while string) {
	from, while = slices.Clone(cursors), "{}"
	for i := range from {
		if c := &from[i]; len(c.While) > 0 {
			c.Position, while = c.Position.Advance(c.After), list(c.While)
		}
	}
	return from, while
}

// rows runs a statement that returns at most that many rows of a bounded read, and sorts its rows by lane and sequence: cheaper
// here than there, where the payloads would be sorted along.
func (s *Store) rows(ctx context.Context, most int, bytes int64, t *taking, statement string, args ...any) ([]Row, error) {
	out, err := s.read(ctx, most, t, statement, args...)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b Row) int {
		return compareIDs(RowID{a.Lane, a.Sequence}, RowID{b.Lane, b.Sequence})
	})
	out, err = s.bounded(ctx, out, bytes)
	for i := range out {
		out[i].size = 0 // rows that are read in other ways have none, and are compared with these
	}
	return out, err
}

func (s *Store) read(ctx context.Context, most int, t *taking, statement string, args ...any) (out []Row, err error) {
	text, err := s.sql.TextFor(ctx, s.db, statement)
	if err != nil {
		return nil, err
	}
	native, err := s.sql.MayBeNative(ctx, s.db)
	if err != nil {
		return nil, err
	}
	if native && !s.cfg.Pooler { // the values come as text then
		native, err := pgsql.Native(ctx, s.db, func(conn *pgx.Conn) error {
			rows, err := s.sql.QueryNative(ctx, conn, text, args...)
			if err == nil {
				out, err = decodeRows(rows, most, t)
			}
			return err
		})
		if native || err != nil {
			return out, err
		}
	}
	return scanBounded(s.sql.Query(ctx, s.db, statement, args...), t)
}
