package outbox

import (
	"context"
	"slices"

	"github.com/uptrace/bun"
)

// MaxLate is the most rows that [Relay.ScanLate] returns.
const MaxLate = 10_000

// lateScan has the index tell in which pages of the table rows may be, and reads each page once. To go through the index lane by lane costs ten
// times as much where nearly all of its entries are of rows that have left: each of them is looked up on its own.
const lateScan = `SELECT set_config(name, 'off', true) FROM unnest('{enable_indexscan,enable_indexonlyscan,enable_seqscan,jit}'::text[]) name`

// lookLate: $1 to $4 as in unsentRows, $5 where the look ends in each lane, $6 and $7 where all of it begins and ends.
const lookLate = `
WITH there AS MATERIALIZED (
	SELECT o.lane, o.seq FROM {schema}.outbox o WHERE o.lane = ANY ($1::smallint[]) AND o.seq > $6::bigint AND o.seq <= $7::bigint)
SELECT t.lane, t.seq FROM there t
JOIN unnest($1::smallint[], $2::bigint[], $3::text[]::int8multirange[], $5::bigint[]) c(lane, after, ahead, upto) USING (lane)
WHERE t.seq > c.after AND t.seq <= c.upto AND NOT t.seq <@ c.ahead AND ` + sameServer + `$4::text
ORDER BY t.lane, t.seq LIMIT 10001`

// ScanLate finds what is unsent in front of a lane up to [Cursor].After, ordered by lane and sequence. It is for a long stretch that nearly
// everything has left. all is false if there are more than [MaxLate] rows: then it returns none.
func (s Relay) ScanLate(ctx context.Context, cursors []Cursor) (ids []RowID, all bool, err error) {
	lanes, after, ahead, incarnation := placed(cursors)
	upto := make([]int64, len(cursors))
	for i, c := range cursors {
		upto[i] = c.After
	}
	err = s.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := s.adHoc().Exec(ctx, tx, lateScan); err != nil {
			return err
		}
		rows, err := s.adHoc().Query(ctx, tx, lookLate, lanes, after, ahead, incarnation, upto, slices.Min(after), slices.Max(upto))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id RowID
			if err := rows.Scan(&id.Lane, &id.Seq); err != nil {
				return err
			}
			ids = append(ids, id)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, false, wrap("look for late rows", err)
	}
	if len(ids) > MaxLate {
		return nil, false, nil
	}
	return ids, true, nil
}
