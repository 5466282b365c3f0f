package lanedb

import (
	"context"
	"strconv"

	"github.com/oncebox/oncebox/internal/outboxdb"
)

// takeRows notes which rows are about to be published, so that the next owner knows them if this one vanishes. A lane
// that was lost is missing in the answer. It is also a look at the sequence, see [Watermark]: the insert gives the
// statement a transaction id.
//
// It takes no lock. A lane may be lost right after the comparison, and then the answer is out of date. That does no
// harm, because the caller publishes only within its lease, and no other projector gets the lane before the lease has
// ended.
const takeRows = `
WITH mine AS MATERIALIZED (
	SELECT l.lane, c.upto, c.picked
	FROM ` + asynchronous + ` {schema}.outbox_lane l
	JOIN unnest($2::smallint[], $3::bigint[], $4::bigint[], $5::text[]) c(lane, epoch, upto, picked) USING (lane, epoch)
	WHERE l.owner = $1 AND ` + sameServer + `$6::text),
noted AS (
	INSERT INTO {schema}.outbox_claim (lane, upto, picked) SELECT m.lane, m.upto, nullif(m.picked, '')::bigint[] FROM mine m)
SELECT coalesce((SELECT string_agg(m.lane::text, ',') FROM mine m), ''), ` + markOfTake

// markOfTake has the columns for [Watermark] in the answer of a statement that takes rows.
const markOfTake = `coalesce(pg_sequence_last_value('{schema}.outbox_seq'), 0),
	pg_current_xact_id()::text::bigint, pg_snapshot_xmin(pg_current_snapshot())::text::bigint`

// Taken are rows of one lane that are about to be published.
type Taken struct {
	Lease Lease
	// Upto is the highest number of the rows that are taken in their turn. Picked has the numbers of further rows.
	Upto   int64
	Picked []int64
}

// Take notes rows that were read and are about to be published. It returns the lanes that are still held: rows of
// other lanes must not be published. Of the mark, only Seq, XID and Xmin are set.
func (s Log) Take(ctx context.Context, taken []Taken) (held map[int16]bool, mark Watermark, err error) {
	leases := make([]Lease, len(taken))
	upto, picked := make([]int64, len(taken)), make([]string, len(taken))
	for i, t := range taken {
		leases[i], upto[i], picked[i] = t.Lease, t.Upto, list(t.Picked)
	}
	owner, lanes, epochs := split(leases)
	var mine string
	err = s.box.Run.QueryRow(ctx, s.box.DB, takeRows, []any{owner, lanes, epochs, upto, picked, incarnationOf(leases)}, &mine, &mark.Seq, &mark.XID, &mark.Xmin)
	held = map[int16]bool{}
	for _, n := range parseInts(mine) {
		held[int16(n)] = true //nolint:gosec // it is a smallint
	}
	return held, mark, outboxdb.Wrap("take rows", err)
}

// taking is the second part of the answer of a fetch that also takes its rows: the lanes that are held, and the mark.
type taking struct {
	held map[int16]bool
	mark Watermark
}

// decode reads the columns behind those of a row, as scan does for database/sql. taking is nil in a fetch that only
// reads.
func (t *taking) decode(d *outboxdb.Decoder, r *outboxdb.Row) {
	if t == nil {
		return
	}
	if d.Bool() {
		t.held[r.Lane] = true
	}
	t.mark.Seq, t.mark.XID, t.mark.Xmin = d.Int64(), d.Int64(), d.Int64()
}

func (t *taking) scan(r *outboxdb.Row) []any {
	if t == nil {
		return nil
	}
	return []any{&isHeld{t, r}, &t.mark.Seq, &t.mark.XID, &t.mark.Xmin}
}

// isHeld scans whether the lane of a row is still held.
type isHeld struct {
	t *taking
	r *outboxdb.Row
}

// Scan implements [sql.Scanner].
func (h *isHeld) Scan(src any) error {
	if held, is := src.(bool); is && held {
		h.t.held[h.r.Lane] = true
	}
	return nil
}

// list writes numbers as an array, and none as ”.
func list(numbers []int64) string {
	if len(numbers) == 0 {
		return ""
	}
	out := []byte{'{'}
	for i, n := range numbers {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, n, 10)
	}
	return string(append(out, '}'))
}
