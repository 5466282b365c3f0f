package outbox

import (
	"context"
	"slices"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// FarWindow is how many rows of a lane [Relay.ScanFar] looks at.
const FarWindow = 10_000

// lookFar is lookRows over a long stretch, which has to be one statement: only a snapshot that shows a row shows all
// earlier ones of its key. It returns what may leave and nothing else.
//
// The inner LIMIT is a literal for the reason given at fetchRows.
const lookFar = `
SELECT c.lane, w.seq, coalesce(w.ordering_key, '')
FROM ` + unsentRows + ` CROSS JOIN LATERAL (
	SELECT y.seq, y.ordering_key FROM (
		SELECT x.seq, x.ordering_key, x.topic <> ALL ($5::text[]) AND x.tenant_id <> ALL ($6::text[]) AS pass,
			x.ordering_key IS NOT NULL AND bool_or(x.topic = ANY ($5::text[])) OVER (PARTITION BY x.ordering_key ORDER BY x.seq) AS behind
		FROM (
			SELECT o.seq, o.ordering_key, o.topic, o.tenant_id FROM {schema}.outbox o
			WHERE o.lane = c.lane AND o.seq > c.after AND NOT o.seq <@ c.ahead ORDER BY o.seq LIMIT 10000) x) y
	WHERE y.pass AND NOT y.behind ORDER BY y.seq LIMIT 100) w
WHERE ` + sameServer + `$4::text`

// ScanFar is [Relay.Scan] for rows far behind those that stay. It looks at [FarWindow] rows of each lane and returns,
// ordered by lane and sequence, the first hundred that the filter lets through and that are not behind a row of a paused topic
// under their key.
func (s Relay) ScanFar(ctx context.Context, cursors []Cursor, keep Filter) ([]RowInfo, error) {
	rows := s.sql.Query(ctx, s.db, lookFar, append(from(cursors), notNil(keep.Topics), notNil(keep.Tenants))...)
	out, err := pgsql.Collect(rows, func(scan pgsql.Scan, g *RowInfo) error {
		g.Pass = true
		return scan(&g.Lane, &g.Seq, &g.Key)
	})
	slices.SortFunc(out, func(a, b RowInfo) int { return compareIDs(a.RowID, b.RowID) })
	return out, wrap("scan lanes far", err)
}
