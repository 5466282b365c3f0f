package outbox

import (
	"context"
	"slices"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// MaxLate is the most rows that [Relay.ScanLate] returns.
const MaxLate = 50_000

// lookLate is run without the settings of pagesOnce: the index tells in which pages of the table rows may be, and each page is read once. To go through
// the index lane by lane costs ten times as much where nearly all of its entries are of rows that have left: each of them is looked up on its own.
const lookLate = `
SELECT o.lane, o.seq FROM {schema}.outbox o
WHERE o.lane = ANY ($1::smallint[]) AND o.seq > $2::bigint AND o.seq <= $3::bigint AND ` + sameServer + `$4::text LIMIT 50001`

// ScanLate finds the rows of the lanes whose numbers are beyond after and not beyond upto, ordered by lane and sequence, and published ones that stay where
// they are among them. It is for a long stretch that nearly everything has left. all is false if there are more than [MaxLate] rows: then it
// returns none.
func (s Relay) ScanLate(ctx context.Context, lanes []int16, after, upto int64, incarnation string) (ids []RowID, all bool, err error) {
	err = s.without(ctx, pagesOnce(), func(ctx context.Context, tx bun.Tx) error {
		ids, err = pgsql.Collect(s.adHoc().Query(ctx, tx, lookLate, lanes, after, upto, incarnation), func(scan pgsql.Scan, id *RowID) error {
			return scan(&id.Lane, &id.Seq)
		})
		return err
	})
	if err != nil {
		return nil, false, wrap("look for late rows", err)
	}
	if len(ids) > MaxLate {
		return nil, false, nil
	}
	slices.SortFunc(ids, compareIDs)
	return ids, true, nil
}

// pagesOnce leave the planner nothing but a bitmap scan.
func pagesOnce() []string {
	return []string{"enable_indexscan", "enable_indexonlyscan", "enable_seqscan", "jit"}
}
