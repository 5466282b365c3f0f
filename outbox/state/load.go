package state

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Load is how much a tenant has recorded of one type and topic.
type Load struct {
	Tenant, Topic, Type string
	// Events is the number of events, an estimate for lanes with more than [Looked] of them.
	Events float64
}

// Looked is how many events [Reader.Loads] reads of each lane, the latest ones.
const Looked = 100

// mostLoads is how many loads are returned, the largest.
const mostLoads = 200

// loads reads the latest rows of each lane backwards by the index, whatever lies before them. It compares the days in the scan, so that PostgreSQL leaves
// out the partitions of other days, and the exact time behind it: in the scan it would walk over a whole day of rows that are too old. A lane whose rows
// are all of the time may have more. For the rest of the time the rate of the rows that were read is assumed.
const loads = `
WITH rows AS MATERIALIZED (
	SELECT l.lane, o.tenant_id, o.topic, o.event_type, o.created_at, count(*) OVER w AS n, min(o.created_at) OVER w AS first
	FROM {schema}.outbox_lane l CROSS JOIN LATERAL (
		SELECT o.tenant_id, o.topic, o.event_type, o.created_at FROM {schema}.outbox o
		WHERE o.lane = l.lane AND o.created_at >= date_trunc('day', $1::timestamptz AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
		ORDER BY o.lane DESC, o.seq DESC LIMIT %[1]d) o
	WINDOW w AS (PARTITION BY l.lane)),
now AS (SELECT clock_timestamp() AS at)
SELECT r.tenant_id, r.topic, r.event_type,
	sum(CASE WHEN r.n < %[1]d OR r.first <= $1::timestamptz THEN 1
		ELSE extract(epoch FROM now.at - $1::timestamptz) / greatest(extract(epoch FROM now.at - r.first), 0.001) END)::float8 AS events
FROM rows r, now WHERE r.created_at >= $1::timestamptz AND (cardinality($2::text[]) = 0 OR r.topic = ANY ($2::text[]))
GROUP BY r.tenant_id, r.topic, r.event_type ORDER BY events DESC, r.tenant_id, r.topic, r.event_type LIMIT %[2]d`

// readLoads reads the loads since a time, of the given topics or of all.
func readLoads(ctx context.Context, box *outboxdb.Handle, since time.Time, topics []string) (list []Load, err error) {
	err = box.Without(ctx, backwards(), func(ctx context.Context, tx bun.Tx) error {
		rows := box.AdHoc().Query(ctx, tx, fmt.Sprintf(loads, Looked, mostLoads), since, topics)
		list, err = pgsql.Collect(rows, func(scan pgsql.Scan, l *Load) error { return scan(&l.Tenant, &l.Topic, &l.Type, &l.Events) })
		return err
	})
	return list, err
}

// backwards lists the settings without which the statement reads each lane by the index from its end. PostgreSQL would read and sort whole lanes that it
// takes for short: its statistics are from before a flood.
func backwards() []string {
	return []string{"enable_sort", "enable_bitmapscan", "enable_seqscan", "jit"}
}
