package outbox

import (
	"context"
	"time"
)

// Stats is what an operator looks at first.
type Stats struct {
	// Lanes that have rows to publish, and the age of the oldest of these rows.
	BusyLanes int
	OldestAge time.Duration
	// Free lanes have no owner; while it is more than 0 for longer than a lease, no projector is running.
	FreeLanes int
	// Held rows, blocked keys and dead letters, each counted up to 10,000.
	Held, Blocked, Dead int
}

// statistics costs one index look-up per lane and bounded counts: a count over a backlog of millions would be the
// load that it is meant to show.
const statistics = `
SELECT count(h.created_at), coalesce(extract(epoch FROM max(clock_timestamp() - h.created_at)), 0)::float8,
	count(*) FILTER (WHERE l.owner IS NULL OR l.lease_until < clock_timestamp()),
	(SELECT count(*) FROM (SELECT 1 FROM {schema}.outbox_held LIMIT 10000) x),
	(SELECT count(*) FROM (SELECT 1 FROM {schema}.outbox_block LIMIT 10000) x),
	(SELECT count(*) FROM (SELECT 1 FROM {schema}.outbox_dead LIMIT 10000) x)
FROM {schema}.outbox_lane l LEFT JOIN LATERAL (
	SELECT o.created_at FROM {schema}.outbox o WHERE o.lane = l.lane ORDER BY o.seq LIMIT 1) h ON true`

// Stats reads the state of the outbox.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	var st Stats
	var age float64
	err := s.sql.QueryRow(ctx, s.db, statistics, nil, &st.BusyLanes, &age, &st.FreeLanes, &st.Held, &st.Blocked, &st.Dead)
	st.OldestAge = time.Duration(age * float64(time.Second))
	return st, wrap("read statistics", err)
}
