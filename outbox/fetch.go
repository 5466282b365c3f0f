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
	Lease Lease
	// After is a sequence up to which the lane is known to be empty for good, see [Watermark]. 0: from the head.
	After int64
	// Quota is at most [MaxFetch].
	Quota int32
}

// fetchRows reads the heads of several lanes and notes in the lane how far it read: rows up to claimed_seq may be on
// their way to the broker, which is what a successor, and a reader of the view, must know.
//
// All rows come from one snapshot and from the head. A snapshot that shows a row of a key shows every earlier row of
// that key, so sorting by seq is enough; a remembered cursor would jump over rows that commit late.
//
// The inner LIMIT is a literal on purpose. With a parameter in its place the generic plan costs so much that every
// fetch is JIT-compiled, and with the filter beside it the planner sorts the whole backlog. It is also no larger than
// need be: a lane in which the planner expects fewer rows than the limit is read and sorted as a whole.
//
// What it notes need not outlive a crash of the server: it is for the case that the projector dies and the server lives.
const (
	fetchFew  = fetchStart + "32" + fetchEnd
	fetchSome = fetchStart + "128" + fetchEnd
	fetchMany = fetchStart + "500" + fetchEnd
)

// asynchronous, first in a FROM, makes the statement's own commit not wait for the disk or for standbys.
const asynchronous = `(SELECT set_config('synchronous_commit', 'off', true)) asynchronous CROSS JOIN`

const fetchStart = `
WITH mine AS MATERIALIZED (
	SELECT l.lane, c.after, c.quota
	FROM ` + asynchronous + ` {schema}.outbox_lane l
	JOIN unnest($2::smallint[], $3::bigint[], $4::bigint[], $5::int[]) c(lane, epoch, after, quota) USING (lane, epoch)
	WHERE l.owner = $1 ORDER BY l.lane FOR NO KEY UPDATE OF l),
f AS MATERIALIZED (
	SELECT o.* FROM mine c CROSS JOIN LATERAL (
		SELECT * FROM (
			SELECT ` + columns + ` FROM {schema}.outbox o
			WHERE o.lane = c.lane AND o.seq > c.after ORDER BY o.seq LIMIT `

const fetchEnd = `) x
		ORDER BY x.seq LIMIT c.quota) o),
noted AS (
	UPDATE {schema}.outbox_lane l SET claimed_seq = x.hi
	FROM (SELECT lane, max(seq) AS hi FROM f GROUP BY lane) x
	WHERE l.lane = x.lane AND l.claimed_seq < x.hi)
SELECT ` + boundedColumns + ` FROM f`

// Fetch reads the next rows of the lanes, ordered by lane and sequence. A lane that was lost gives no rows. The rows stay
// where they are until they are settled. All payloads together are within bytes, but the first row comes whatever its size;
// 0: there is no bound. The last row of a lane may be cut, because it did not fit, see [Row].Cut.
func (s Relay) Fetch(ctx context.Context, cursors []Cursor, bytes int64) ([]Row, error) {
	leases := make([]Lease, len(cursors))
	after, quota := make([]int64, len(cursors)), make([]int32, len(cursors))
	most, total := int32(0), 0
	for i, c := range cursors {
		leases[i], after[i], quota[i] = c.Lease, c.After, min(c.Quota, MaxFetch)
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
	owner, lanes, epochs := split(leases)
	out, err := s.rows(ctx, total, bytes, statement, owner, lanes, epochs, after, quota, small(bytes, total))
	return out, wrap("fetch rows", err)
}

// rows runs a statement that returns at most that many rows of boundedColumns, and sorts its rows by lane and sequence: cheaper
// here than there, where the payloads would be sorted along.
func (s *Store) rows(ctx context.Context, most int, bytes int64, statement string, args ...any) ([]Row, error) {
	out, err := s.read(ctx, most, statement, args...)
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

func (s *Store) read(ctx context.Context, most int, statement string, args ...any) (out []Row, err error) {
	native, err := s.sql.MayBeNative(ctx, s.db)
	if err != nil {
		return nil, err
	}
	if native && !s.cfg.Pooler { // the values come as text then
		native, err := pgsql.Native(ctx, s.db, func(conn *pgx.Conn) error {
			rows, err := s.sql.QueryNative(ctx, conn, statement, args...)
			if err == nil {
				out, err = decodeRows(rows, most)
			}
			return err
		})
		if native || err != nil {
			return out, err
		}
	}
	rows, err := s.sql.Query(ctx, s.db, statement, args...)
	if err != nil {
		return nil, err
	}
	return scanBounded(rows)
}
