package outbox

import "context"

// FewRows is the most rows that [Relay.FetchFew] takes from one lane.
const FewRows = 32

// fetchAndTake is fetchFew and takeRows in one statement: $1 to $7 as in fetchStart, $8 owner, $9 epochs, $10 taken. Both look at one snapshot. A lane
// that is lost a moment later is one that is lost a moment after takeRows. It assigns a transaction id only if there are rows.
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

// FetchFew is [Relay.Fetch] and [Relay.Take] at once, for lanes in which few rows are: it saves one of three journeys to the database. It carries the rows
// through the server once more, which costs more than it saves when they are many. What was read of a lane that is missing in held
// must not be published. Without rows nothing is noted, and held and the mark are empty.
func (s Relay) FetchFew(ctx context.Context, cursors []Cursor, bytes int64) (rows []Row, held map[int16]bool, mark Watermark, err error) {
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
	return rows, t.held, t.mark, wrap("fetch and take rows", err)
}
