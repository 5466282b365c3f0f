package outbox

import (
	"context"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// recordRows notes how far lanes have come. Their rows stay where they are.
const recordRows = settleFence + `
INSERT INTO {schema}.outbox_progress (lane, upto, sent, ahead, total)
SELECT p.lane, p.upto, p.sent, p.ahead, p.total
FROM unnest($2::smallint[], $4::bigint[], $5::bigint[], $6::text[]::int8multirange[], $7::bigint[]) p(lane, upto, sent, ahead, total)
JOIN lane ON lane.lane = p.lane
WHERE ` + sameServer + `$8::text
RETURNING lane`

// Placed is a lane and how far it has come.
type Placed struct {
	Lease    Lease
	Position Position
}

// Record stores how far lanes have come: the broker confirmed all rows that their positions say are out, and they stay where they are. It
// returns the lanes that were still held; of the others nothing was written.
//
// Nothing is written either if the server has crashed since the positions were read, or another one has taken over: it may have
// given the numbers to other rows.
func (s Relay) Record(ctx context.Context, placed []Placed) (held map[int16]bool, err error) {
	leases := make([]Lease, len(placed))
	upto, sent, ahead := make([]int64, len(placed)), make([]int64, len(placed)), make([]string, len(placed))
	total := make([]int64, len(placed))
	for i, p := range placed {
		leases[i], upto[i], sent[i], ahead[i], total[i] = p.Lease, p.Position.Upto, p.Position.Sent, p.Position.ranges(), p.Position.Total
	}
	owner, lanes, epochs := split(leases)
	held, err = scanLanes(s.sql.Query(ctx, s.db, recordRows, owner, lanes, epochs, upto, sent, ahead, total, incarnationOf(leases)))
	return held, wrap("record positions", err)
}

// Keeps tells whether published rows stay where they are, and [Relay.Record] is for them. If not, they are deleted by [Relay.Settle].
func (s Relay) Keeps() bool { return s.keeps() }

const positions = `
SELECT c.lane, c.upto, c.sent, c.total, coalesce((SELECT string_agg(generated::text, ',' ORDER BY generated)
	FROM unnest(c.ahead) part, generate_series(lower(part), upper(part) - 1) generated), ''), seen.behind, seen.known,
	` + incarnation + `
FROM {schema}.outbox_cursor c CROSS JOIN ` + numbersSeen + ` seen WHERE c.lane = ANY ($1::smallint[])`

// Positions reads where lanes are, and the incarnation of the server that says so. It is to be called after [Relay.Claim] has returned.
func (s Relay) Positions(ctx context.Context, lanes []int16) (at map[int16]Position, incarnation string, err error) {
	at = make(map[int16]Position, len(lanes))
	behind, known := false, true
	err = pgsql.Each(s.sql.Query(ctx, s.db, positions, lanes), func(scan pgsql.Scan) error {
		var lane int16
		var p Position
		var ahead string
		if err := scan(&lane, &p.Upto, &p.Sent, &p.Total, &ahead, &behind, &known, &incarnation); err != nil {
			return err
		}
		p.Ahead = parseInts(ahead)
		at[lane] = p
		return nil
	})
	if err != nil {
		return nil, "", wrap("read positions", err)
	}
	if err := s.checkNumbers(ctx, behind, known); err != nil {
		return nil, "", wrap("read positions", err)
	}
	return at, incarnation, nil
}
