package lanedb

import (
	"cmp"
	"context"
	"slices"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// ScanWindow is the number of rows of a lane that one scan looks at.
const ScanWindow = 500

// Filter names rows that are to stay where they are for now.
type Filter struct {
	Topics, Tenants []string
}

// RowInfo describes a row in the answer of a scan.
type RowInfo struct {
	outboxdb.RowID
	// Key is the ordering key, "" for an unordered row.
	Key string
	// Topic is "" if the filter names none.
	Topic string
	// Pass says that the filter lets the row through. Paused says that the filter keeps it because of its topic
	// alone.
	Pass, Paused bool
	// More says that the lane has rows behind the last row that the scan looked at.
	More bool
	// Kept says that the filter keeps at least one of the rows that the scan looked at in this lane.
	Kept bool
}

// lookRows looks at the next rows of each lane, without their payloads. It returns three kinds of rows: rows that
// pass; rows that are paused, because no later row of their key may pass them; and the last row of each lane. A row
// of a tenant that stays does not count as paused: its whole key belongs to that tenant, so no row that passes is
// behind it.
//
// The inner LIMIT is a literal for the reason given at fetchRows.
const lookRows = `
SELECT c.lane, w.seq, coalesce(w.ordering_key, ''), w.topic, w.pass, w.paused, w.size = 500, NOT w.all_pass
FROM ` + unsentRows + ` CROSS JOIN LATERAL (
	SELECT x.seq, x.ordering_key, x.topic, x.topic = ANY ($5::text[]) AND x.tenant_id <> ALL ($6::text[]) AS paused,
		x.topic <> ALL ($5::text[]) AND x.tenant_id <> ALL ($6::text[]) AS pass,
		count(*) OVER () AS size, max(x.seq) OVER () AS last,
		bool_and(x.topic <> ALL ($5::text[]) AND x.tenant_id <> ALL ($6::text[])) OVER () AS all_pass
	FROM (
		SELECT o.seq, o.ordering_key, o.topic, o.tenant_id FROM {schema}.outbox o
		WHERE o.lane = c.lane AND o.seq > c.after AND NOT o.seq <@ c.ahead ORDER BY o.seq LIMIT 500) x) w
WHERE (w.pass OR w.paused OR w.seq = w.last) AND ` + sameServer + `$4::text AND $7` + areOpen

// unsentRows are the lanes of a scan: $1 lanes, $2 after, $3 ahead. $4 is the incarnation, and the last parameter of
// a scan is the list of transactions that must be open.
const unsentRows = `unnest($1::smallint[], $2::bigint[], $3::text[]::int8multirange[]) c(lane, after, ahead)`

// lookTenants is lookRows for a filter that names tenants alone. No row of another tenant waits behind their rows, so
// the keys are not needed. It costs half as much, which matters because whole backlogs are searched with it.
const lookTenants = `
SELECT c.lane, w.last, w.size = 500, coalesce(array_to_string(w.pass, ','), ''), w.size > coalesce(cardinality(w.pass), 0)
FROM ` + unsentRows + ` CROSS JOIN LATERAL (
	SELECT count(*) AS size, max(x.seq) AS last, array_agg(x.seq) FILTER (WHERE x.tenant_id <> ALL ($5::text[])) AS pass
	FROM (
		SELECT o.seq, o.tenant_id FROM {schema}.outbox o
		WHERE o.lane = c.lane AND o.seq > c.after AND NOT o.seq <@ c.ahead ORDER BY o.seq LIMIT 500) x) w
WHERE w.size > 0 AND ` + sameServer + `$4::text AND $6` + areOpen

// Scan looks at the next rows of each lane, from the cursor on. The result is ordered by lane and sequence. It is empty if one
// of the transactions that a cursor names has ended.
func (s Log) Scan(ctx context.Context, cursors []Cursor, keep Filter) ([]RowInfo, error) {
	var out []RowInfo
	var err error
	if len(keep.Topics) == 0 {
		out, err = s.scanTenants(ctx, cursors, keep.Tenants)
	} else {
		out, err = s.scanTopics(ctx, cursors, keep)
	}
	slices.SortFunc(out, func(a, b RowInfo) int { return compareIDs(a.RowID, b.RowID) })
	return out, outboxdb.Wrap("scan lanes", err)
}

// scanArgs turns cursors into the arguments of a scan: the first ones, the given ones, and the last one.
func scanArgs(cursors []Cursor, keep ...any) []any {
	from, while := shortcuts(cursors)
	lanes, after, ahead, incarnation := placed(from)
	for i, c := range from {
		after[i] = max(after[i], c.After)
	}
	return append(append([]any{lanes, after, ahead, incarnation}, keep...), while)
}

func (s Log) scanTopics(ctx context.Context, cursors []Cursor, keep Filter) ([]RowInfo, error) {
	rows := s.box.Run.Query(ctx, s.box.DB, lookRows, scanArgs(cursors, keep.Topics, notNil(keep.Tenants))...)
	return pgsql.Collect(rows, func(scan pgsql.Scan, g *RowInfo) error {
		return scan(&g.Lane, &g.Seq, &g.Key, &g.Topic, &g.Pass, &g.Paused, &g.More, &g.Kept)
	})
}

func (s Log) scanTenants(ctx context.Context, cursors []Cursor, tenants []string) (out []RowInfo, err error) {
	err = pgsql.Each(s.box.Run.Query(ctx, s.box.DB, lookTenants, scanArgs(cursors, notNil(tenants))...), func(scan pgsql.Scan) error {
		var last RowInfo
		var pass string
		if err := scan(&last.Lane, &last.Seq, &last.More, &pass, &last.Kept); err != nil {
			return err
		}
		for _, seq := range parseInts(pass) {
			if seq == last.Seq {
				last.Pass = true
			} else {
				out = append(out, RowInfo{RowID: outboxdb.RowID{Lane: last.Lane, Seq: seq}, Pass: true, More: last.More, Kept: last.Kept})
			}
		}
		out = append(out, last)
		return nil
	})
	return out, err
}

func compareIDs(a, b outboxdb.RowID) int {
	return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Seq, b.Seq))
}

// notNil returns an array where nil would be NULL, and no comparison with NULL is true.
func notNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// pickRows reads rows that were chosen after a scan, as fetchRows reads the heads of lanes.
const pickRows = `
SELECT ` + boundedStart + `$4` + boundedEnd + ` FROM (
	SELECT o.* FROM unnest($1::smallint[], $2::bigint[]) a(lane, seq) CROSS JOIN LATERAL (
		SELECT {columns} FROM {schema}.outbox o WHERE o.lane = a.lane AND o.seq = a.seq ORDER BY o.seq LIMIT 1) o
	WHERE ` + sameServer + `$3::text) f`

// FetchRows reads rows that a scan has found, ordered by lane and sequence. As with [Log.Fetch], their payloads
// together are within bytes; 0: there is no bound. [Log.Take] must be called before any of them is published.
func (s Log) FetchRows(ctx context.Context, leases []Lease, ids []outboxdb.RowID, bytes int64) ([]outboxdb.Row, error) {
	rowLanes, seqs := splitIDs(ids)
	out, err := s.rows(ctx, len(ids), bytes, nil, pickRows, rowLanes, seqs, incarnationOf(leases), small(bytes, len(ids)))
	return out, outboxdb.Wrap("pick rows", err)
}

func incarnationOf(leases []Lease) string {
	if len(leases) == 0 {
		return ""
	}
	return leases[0].Incarnation
}

func splitIDs(ids []outboxdb.RowID) (lanes []int16, seqs []int64) {
	lanes, seqs = make([]int16, len(ids)), make([]int64, len(ids))
	for i, id := range ids {
		lanes[i], seqs[i] = id.Lane, id.Seq
	}
	return lanes, seqs
}

const (
	// FarWindow is the number of rows of a lane that [Log.ScanFar] looks at.
	FarWindow = 10_000
	// FarRows is the most rows that it returns of a lane.
	FarRows = 100
)

// lookFar is lookRows over a long stretch. It has to be one statement, because the order rests on its one snapshot: a
// snapshot that shows a row shows all earlier rows of its key. It returns only rows that may leave.
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
WHERE ` + sameServer + `$4::text AND $7` + areOpen

// ScanFar is [Log.Scan] for rows far behind the rows that stay. It looks at [FarWindow] rows of each lane. It
// returns, ordered by lane and sequence, the first hundred rows that the filter lets through, without rows that have
// a row of a paused topic in front of them under their key. As with [Log.Scan], there is no row if a transaction has ended.
func (s Log) ScanFar(ctx context.Context, cursors []Cursor, keep Filter) ([]RowInfo, error) {
	rows := s.box.Run.Query(ctx, s.box.DB, lookFar, scanArgs(cursors, notNil(keep.Topics), notNil(keep.Tenants))...)
	out, err := pgsql.Collect(rows, func(scan pgsql.Scan, g *RowInfo) error {
		g.Pass = true
		return scan(&g.Lane, &g.Seq, &g.Key)
	})
	slices.SortFunc(out, func(a, b RowInfo) int { return compareIDs(a.RowID, b.RowID) })
	return out, outboxdb.Wrap("scan lanes far", err)
}

// MaxLate is the most rows that [Log.ScanLate] returns.
const MaxLate = 50_000

// lookLate is run while the settings of PagesOnce are off. Then the server takes from the index the pages of the
// table that may have rows, and reads each page once. To go through the index lane by lane would cost ten times as
// much if nearly all entries belong to rows that have left, because each entry is looked up by itself.
const lookLate = `
SELECT o.lane, o.seq FROM {schema}.outbox o
WHERE o.lane = ANY ($1::smallint[]) AND o.seq > $2::bigint AND o.seq <= $3::bigint AND ` + sameServer + `$4::text LIMIT 50001`

// ScanLate finds the rows of the lanes with numbers beyond after, up to upto, ordered by lane and sequence. They include
// published rows that stay in their table. It is made for a long stretch from which nearly all rows have left.
// If there are more than [MaxLate] rows, it returns no row, and all is false.
func (s Log) ScanLate(ctx context.Context, lanes []int16, after, upto int64, incarnation string) (ids []outboxdb.RowID, all bool, err error) {
	err = s.box.Without(ctx, PagesOnce(), func(ctx context.Context, tx bun.Tx) error {
		ids, err = pgsql.Collect(s.box.AdHoc().Query(ctx, tx, lookLate, lanes, after, upto, incarnation), func(scan pgsql.Scan, id *outboxdb.RowID) error {
			return scan(&id.Lane, &id.Seq)
		})
		return err
	})
	if err != nil {
		return nil, false, outboxdb.Wrap("look for late rows", err)
	}
	if len(ids) > MaxLate {
		return nil, false, nil
	}
	slices.SortFunc(ids, compareIDs)
	return ids, true, nil
}

// PagesOnce returns the settings of the planner to switch off, so that only a bitmap scan is left.
func PagesOnce() []string {
	return []string{"enable_indexscan", "enable_indexonlyscan", "enable_seqscan", "jit"}
}
