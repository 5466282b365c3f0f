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

// RowInfo is what a scan tells of a row.
type RowInfo struct {
	RowID
	// Key is the ordering key, "" for an unordered row.
	Key string
	// Topic is "" if the filter names none.
	Topic string
	// Pass says that the filter lets the row through, Paused that it keeps it because of its topic alone.
	Pass, Paused bool
	// More says that the scan ended before the lane did.
	More bool
}

// lookRows looks at the rows behind those that others wait behind, without their payloads. It returns the rows that
// pass, those that are paused, because nothing of their key may pass them, and the last one of each lane. A row of a tenant that
// stays is not paused: its whole key is of that tenant.
//
// The inner LIMIT is a literal for the reason given at fetchRows.
const lookRows = `
SELECT c.lane, w.seq, coalesce(w.ordering_key, ''), w.topic, w.pass, w.paused, w.size = 500
FROM unnest($1::smallint[], $2::bigint[]) c(lane, after) CROSS JOIN LATERAL (
	SELECT x.seq, x.ordering_key, x.topic, x.topic = ANY ($3::text[]) AND x.tenant_id <> ALL ($4::text[]) AS paused,
		x.topic <> ALL ($3::text[]) AND x.tenant_id <> ALL ($4::text[]) AS pass,
		count(*) OVER () AS size, max(x.seq) OVER () AS last
	FROM (
		SELECT o.seq, o.ordering_key, o.topic, o.tenant_id FROM {schema}.outbox o
		WHERE o.lane = c.lane AND o.seq > c.after ORDER BY o.seq LIMIT 500) x) w
WHERE w.pass OR w.paused OR w.seq = w.last`

// lookTenants is lookRows for tenants alone, whose rows nothing of another tenant waits behind. It costs half, and
// whole backlogs are searched with it.
const lookTenants = `
SELECT c.lane, w.last, w.size = 500, coalesce(array_to_string(w.pass, ','), '')
FROM unnest($1::smallint[], $2::bigint[]) c(lane, after) CROSS JOIN LATERAL (
	SELECT count(*) AS size, max(x.seq) AS last, array_agg(x.seq) FILTER (WHERE x.tenant_id <> ALL ($3::text[])) AS pass
	FROM (
		SELECT o.seq, o.tenant_id FROM {schema}.outbox o
		WHERE o.lane = c.lane AND o.seq > c.after ORDER BY o.seq LIMIT 500) x) w
WHERE w.size > 0`

// Scan looks at the next rows of each lane, from the cursor on. The result is ordered by lane and sequence.
func (s Relay) Scan(ctx context.Context, cursors []Cursor, keep Filter) ([]RowInfo, error) {
	lanes, after := make([]int16, len(cursors)), make([]int64, len(cursors))
	for i, c := range cursors {
		lanes[i], after[i] = c.Lease.Lane, c.After
	}
	var out []RowInfo
	var err error
	if len(keep.Topics) == 0 {
		out, err = s.scanTenants(ctx, lanes, after, keep.Tenants)
	} else {
		out, err = s.scanTopics(ctx, lanes, after, keep)
	}
	slices.SortFunc(out, func(a, b RowInfo) int { return compareIDs(a.RowID, b.RowID) })
	return out, wrap("scan lanes", err)
}

func (s *Store) scanTopics(ctx context.Context, lanes []int16, after []int64, keep Filter) (out []RowInfo, err error) {
	rows, err := s.sql.Query(ctx, s.db, lookRows, lanes, after, keep.Topics, notNil(keep.Tenants))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var g RowInfo
		if err := rows.Scan(&g.Lane, &g.Seq, &g.Key, &g.Topic, &g.Pass, &g.Paused, &g.More); err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, rows.Err()
}

func (s *Store) scanTenants(ctx context.Context, lanes []int16, after []int64, tenants []string) (out []RowInfo, err error) {
	rows, err := s.sql.Query(ctx, s.db, lookTenants, lanes, after, notNil(tenants))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var last RowInfo
		var pass string
		if err := rows.Scan(&last.Lane, &last.Seq, &last.More, &pass); err != nil {
			return nil, err
		}
		for _, seq := range parseInts(pass) {
			if seq == last.Seq {
				last.Pass = true
			} else {
				out = append(out, RowInfo{RowID: RowID{last.Lane, seq}, Pass: true, More: last.More})
			}
		}
		out = append(out, last)
	}
	return out, rows.Err()
}

func compareIDs(a, b RowID) int {
	return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Seq, b.Seq))
}

// notNil returns an array where nil would be NULL, and no comparison with NULL is true.
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
SELECT ` + boundedColumns + ` FROM f`

// FetchRows reads rows that a scan has found, ordered by lane and sequence. A lane that was lost gives none. Their payloads are within
// bytes, as those of [Relay.Fetch] are; 0: there is no bound.
func (s Relay) FetchRows(ctx context.Context, leases []Lease, ids []RowID, bytes int64) ([]Row, error) {
	owner, lanes, epochs := split(leases)
	rowLanes, seqs := splitIDs(ids)
	out, err := s.rows(ctx, len(ids), bytes, pickRows, owner, lanes, epochs, rowLanes, seqs, small(bytes, len(ids)))
	return out, wrap("pick rows", err)
}

func splitIDs(ids []RowID) (lanes []int16, seqs []int64) {
	lanes, seqs = make([]int16, len(ids)), make([]int64, len(ids))
	for i, id := range ids {
		lanes[i], seqs[i] = id.Lane, id.Seq
	}
	return lanes, seqs
}
