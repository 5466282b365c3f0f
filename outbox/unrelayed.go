package outbox

import (
	"context"
	"database/sql"
	"time"
)

// oldestUnrelayed looks at the first row of each lane that no process holds.
const oldestUnrelayed = `
SELECT min(h.created_at) FROM {schema}.outbox_lane l JOIN {schema}.outbox_cursor c ON c.lane = l.lane CROSS JOIN LATERAL (
	SELECT o.created_at FROM {schema}.outbox o WHERE o.lane = l.lane AND o.seq > c.sent AND NOT o.seq <@ c.ahead ORDER BY o.seq LIMIT 1) h
WHERE (l.owner IS NULL OR l.lease_until < clock_timestamp()) AND h.created_at < clock_timestamp() - interval '1 minute'`

// Unrelayed returns since when the oldest event waits that no process would publish, because none holds its lane: no relay is running, or
// none of its group. Events of the last minute do not count; lanes are between two relays at times. Zero: there is none.
func (s *Store) Unrelayed(ctx context.Context) (since time.Time, err error) {
	var oldest sql.NullTime
	err = s.sql.QueryRow(ctx, s.db, oldestUnrelayed, nil, &oldest)
	return oldest.Time, wrap("look for events that nobody publishes", err)
}
