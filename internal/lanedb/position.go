package lanedb

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Position is how far a lane has come. A row of the lane is unsent if its number is beyond Sent and not in Ahead.
//
// The owner of the lane keeps it in memory and stores it with each [Log.Record]. The position in the database is the
// valid one: an owner that is not sure whether the two agree reads it again, see [Log.Positions].
type Position struct {
	// Upto is the highest number that was published in its turn.
	Upto int64
	// Sent is the end of the finished part of the lane: no row with a number up to this is unsent, and none will
	// appear.
	Sent int64
	// Ahead has the numbers of published rows beyond Sent, in order.
	Ahead []int64
	// Total is the number of rows that were published in their turn.
	Total int64
}

// Publish returns the position after rows were published that stay where they are.
func (p Position) Publish(seqs []int64) Position {
	next := Position{Upto: p.Upto, Sent: p.Sent, Ahead: slices.Clone(p.Ahead), Total: p.Total}
	for _, seq := range seqs {
		if p.Has(seq) {
			continue
		}
		next.Upto = max(next.Upto, seq)
		next.Ahead = append(next.Ahead, seq)
		next.Total++
	}
	slices.Sort(next.Ahead)
	return next
}

// Advance returns the position after the finished part of the lane has grown up to a number.
func (p Position) Advance(to int64) Position {
	if to <= p.Sent {
		return p
	}
	n, found := slices.BinarySearch(p.Ahead, to)
	if found {
		n++
	}
	return Position{Upto: p.Upto, Sent: to, Ahead: p.Ahead[n:], Total: p.Total}
}

// Has reports whether the row with this number is published according to the position.
func (p Position) Has(seq int64) bool {
	if seq <= p.Sent {
		return true
	}
	_, ahead := slices.BinarySearch(p.Ahead, seq)
	return ahead
}

// ranges writes Ahead as an int8multirange.
func (p Position) ranges() string {
	if len(p.Ahead) == 0 {
		return "{}"
	}
	out := make([]byte, 0, 2+24*len(p.Ahead))
	out = append(out, '{')
	for i := 0; i < len(p.Ahead); {
		end := i + 1
		for end < len(p.Ahead) && p.Ahead[end] == p.Ahead[end-1]+1 {
			end++
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, '[')
		out = strconv.AppendInt(out, p.Ahead[i], 10)
		out = append(out, ',')
		out = strconv.AppendInt(out, p.Ahead[end-1]+1, 10)
		out = append(out, ')')
		i = end
	}
	return string(append(out, '}'))
}

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

// Record stores how far lanes have come: the broker has confirmed all rows that are published according to these
// positions, and they stay where they are. It returns the lanes that were still held. In all other lanes nothing was
// written.
//
// Nothing is written either if the server has crashed since the positions were read, or if another one has taken
// over: that server may have given the numbers to other rows.
func (s Log) Record(ctx context.Context, placed []Placed) (held map[int16]bool, err error) {
	leases := make([]Lease, len(placed))
	upto, sent, ahead := make([]int64, len(placed)), make([]int64, len(placed)), make([]string, len(placed))
	total := make([]int64, len(placed))
	for i, p := range placed {
		leases[i], upto[i], sent[i], ahead[i], total[i] = p.Lease, p.Position.Upto, p.Position.Sent, p.Position.ranges(), p.Position.Total
	}
	owner, lanes, epochs := split(leases)
	held, err = scanLanes(s.box.Run.Query(ctx, s.box.DB, recordRows, owner, lanes, epochs, upto, sent, ahead, total, incarnationOf(leases)))
	return held, outboxdb.Wrap("record positions", err)
}

const positions = `
SELECT c.lane, c.upto, c.sent, c.total, coalesce((SELECT string_agg(generated::text, ',' ORDER BY generated)
	FROM unnest(c.ahead) part, generate_series(lower(part), upper(part) - 1) generated), ''), seen.behind, seen.known,
	` + incarnation + `
FROM {schema}.outbox_cursor c CROSS JOIN ` + numbersSeen + ` seen WHERE c.lane = ANY ($1::smallint[])`

// Positions reads the positions of lanes, and the incarnation of the server that answers. It must be called after
// [Leases.Claim] has returned: before that, the former owner may still move them. It returns [ErrNumbersAgain] if the
// sequences do not fit the positions.
func (s Log) Positions(ctx context.Context, lanes []int16) (at map[int16]Position, incarnation string, err error) {
	at = make(map[int16]Position, len(lanes))
	behind, known := false, true
	err = pgsql.Each(s.box.Run.Query(ctx, s.box.DB, positions, lanes), func(scan pgsql.Scan) error {
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
		return nil, "", outboxdb.Wrap("read positions", err)
	}
	if err := s.checkNumbers(ctx, behind, known); err != nil {
		return nil, "", outboxdb.Wrap("read positions", err)
	}
	return at, incarnation, nil
}

// ErrNumbersAgain means that outbox_seq gives numbers that rows had before, as after a restore without the sequences. Events with
// such numbers would be taken for published ones.
var ErrNumbersAgain = errors.New("outbox: nothing is published, because the sequence outbox_seq is or was behind the published numbers. Set it with " +
	"SELECT setval('outbox_seq', (SELECT max(greatest(upto, sent)) + 1000 FROM outbox_cursor)), " +
	"setval('outbox_progress_n', (SELECT max(n) + 1000 FROM outbox_progress)), " +
	"and see docs/runbook.md for the events that were recorded since the restore")

const (
	// sequenceOf names the sequence. The name is different on each server, and for each sequence. Only a copy that
	// PostgreSQL makes of all its files has the same name, and such a copy has the sequence as it was.
	sequenceOf = `(SELECT format('%s/%s', c.system_identifier, '{schema}.outbox_seq'::regclass::oid) FROM pg_control_system() c)`

	// numbersSeen is one row. behind: a sequence is behind the positions. known: the numbers of all rows were
	// checked for this sequence.
	numbersSeen = `(SELECT coalesce(max(greatest(x.upto, x.sent)) > coalesce(pg_sequence_last_value('{schema}.outbox_seq'), 0)
		OR max(x.n) > coalesce(pg_sequence_last_value('{schema}.outbox_progress_n'), 0), false) AS behind,
	(SELECT l.numbers_of IS NOT DISTINCT FROM ` + sequenceOf + ` FROM {schema}.oncebox_settings l) AS known
	FROM {schema}.outbox_cursor x)`

	// hidden looks for a row that is published according to a position, although it was stored later than the last
	// position. It reads the rows that were stored since the beginning of that day.
	hidden = `
SELECT EXISTS (SELECT FROM {schema}.outbox o JOIN {schema}.outbox_cursor c USING (lane)
	WHERE o.created_at > (SELECT max(at) + interval '1 second' FROM {schema}.outbox_progress) AND (o.seq <= c.sent OR o.seq <@ c.ahead))`

	doubtNumbers = `UPDATE {schema}.oncebox_settings SET numbers_of = NULL WHERE numbers_of IS NOT NULL`
	trustNumbers = `UPDATE {schema}.oncebox_settings SET numbers_of = ` + sequenceOf
)

// longestLook is the limit of the look at a copy before anything is published from it.
const longestLook = 10 * time.Minute

// checkNumbers returns [ErrNumbersAgain] if a sequence is behind the positions, as after a restore of the tables
// without their sequences. New events then get numbers that positions already call published, and would never be
// sent. Writers bring the sequence beyond the positions in time, and then the fault cannot be seen from the sequence
// any more. So the finding is stored (doubtNumbers).
//
// It also looks at a database that was copied, because its sequence is another one. Before anything is published from
// it, all rows that were recorded since the last publication are compared with the positions (hidden). If no row is
// hidden, the sequence is trusted from then on.
func (s Log) checkNumbers(ctx context.Context, behind, known bool) error {
	if behind {
		if _, err := s.box.Run.Exec(ctx, s.box.DB, doubtNumbers); err != nil {
			return err
		}
		return ErrNumbersAgain
	}
	if known {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestLook)
	defer cancel()
	var again bool
	if err := s.box.AdHoc().QueryRow(ctx, s.box.DB, hidden, nil, &again); err != nil {
		return err
	}
	if again {
		return ErrNumbersAgain
	}
	_, err := s.box.Run.Exec(ctx, s.box.DB, trustNumbers)
	return err
}
