package outbox

import (
	"cmp"
	"context"
	"slices"
)

// ScanWindow is how many rows of a lane one scan looks at.
const ScanWindow = 500

// Filter names rows that are to stay where they are for now.
type Filter struct {
	Topics, Tenants []string
}

// Glance is what a scan tells of a row.
type Glance struct {
	RowID
	// Key is the ordering key, "" for an unordered row.
	Key string
	// Pass says that the filter lets the row through, Paused that it keeps it because of its topic.
	Pass, Paused bool
	// Window is how many rows of the lane were looked at: fewer than [ScanWindow] if that was its end.
	Window int
}

// glanceRows looks at the rows behind those that others wait behind, without their payloads. It returns the rows that
// pass, those that are paused and have a key, because nothing of that key may pass them, and the last one of each lane.
//
// The inner LIMIT is a literal for the reason given at fetchRows.
const glanceRows = `
SELECT c.lane, w.seq, coalesce(w.ordering_key, ''), w.pass, w.paused, w.size
FROM unnest($1::smallint[], $2::bigint[]) c(lane, after) CROSS JOIN LATERAL (
	SELECT x.seq, x.ordering_key, x.topic = ANY ($3::text[]) AS paused,
		x.topic <> ALL ($3::text[]) AND x.tenant_id <> ALL ($4::text[]) AS pass,
		count(*) OVER () AS size, max(x.seq) OVER () AS last
	FROM (
		SELECT o.seq, o.ordering_key, o.topic, o.tenant_id FROM {schema}.outbox o
		WHERE o.lane = c.lane AND o.seq > c.after ORDER BY o.seq LIMIT 500) x) w
WHERE w.pass OR w.seq = w.last OR (w.paused AND w.ordering_key IS NOT NULL)`

// Scan looks at up to [ScanWindow] rows of each lane, from the cursor on. The result is ordered by lane and sequence.
func (s *Store) Scan(ctx context.Context, cursors []Cursor, keep Filter) ([]Glance, error) {
	lanes, after := make([]int16, len(cursors)), make([]int64, len(cursors))
	for i, c := range cursors {
		lanes[i], after[i] = c.Lease.Lane, c.After
	}
	rows, err := s.sql.Query(ctx, s.db, glanceRows, lanes, after, notNil(keep.Topics), notNil(keep.Tenants))
	if err != nil {
		return nil, wrap("scan lanes", err)
	}
	defer rows.Close()
	var out []Glance
	for rows.Next() {
		var g Glance
		if err := rows.Scan(&g.Lane, &g.Seq, &g.Key, &g.Pass, &g.Paused, &g.Window); err != nil {
			return nil, wrap("scan lanes", err)
		}
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b Glance) int { return compareIDs(a.RowID, b.RowID) })
	return out, wrap("scan lanes", rows.Err())
}

func compareIDs(a, b RowID) int {
	return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Seq, b.Seq))
}

// notNil returns an array where nil would be NULL, of which no comparison is true.
func notNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// pickRows is fetchRows for rows that were chosen by a scan. They are noted one by one, see the column's comment.
const pickRows = `
WITH mine AS MATERIALIZED (
	SELECT l.lane
	FROM {schema}.outbox_lane l JOIN unnest($2::smallint[], $3::bigint[]) c(lane, epoch) USING (lane, epoch)
	WHERE l.owner = $1 ORDER BY l.lane FOR NO KEY UPDATE OF l),
f AS MATERIALIZED (
	SELECT o.seq, o.id, o.occurred_at, o.created_at, o.not_before, o.expires_at, o.aggregate_version, o.schema_version,
		o.lane, o.max_attempts, o.retry_count, o.crashes, o.tenant_id, o.topic, o.ordering_key, o.aggregate_type,
		o.aggregate_id, o.event_type, o.source, o.routing_key, o.schema_id, o.content_type, o.dedup_key,
		o.event_metadata, o.payload
	FROM unnest($4::smallint[], $5::bigint[]) a(lane, seq) JOIN mine USING (lane)
	JOIN {schema}.outbox o ON o.lane = a.lane AND o.seq = a.seq),
noted AS (
	UPDATE {schema}.outbox_lane l SET picked = x.seqs
	FROM (SELECT lane, array_agg(seq) AS seqs FROM f GROUP BY lane) x WHERE l.lane = x.lane)
SELECT ` + rowColumns + ` FROM f`

// Pick reads rows that a scan has found, ordered by lane and sequence. A lane that was lost gives none.
func (s *Store) Pick(ctx context.Context, leases []Lease, ids []RowID) ([]Row, error) {
	owner, lanes, epochs := split(leases)
	rowLanes, seqs := splitIDs(ids)
	out, err := s.rows(ctx, pickRows, owner, lanes, epochs, rowLanes, seqs)
	return out, wrap("pick rows", err)
}

func splitIDs(ids []RowID) (lanes []int16, seqs []int64) {
	lanes, seqs = make([]int16, len(ids)), make([]int64, len(ids))
	for i, id := range ids {
		lanes[i], seqs[i] = id.Lane, id.Seq
	}
	return lanes, seqs
}
