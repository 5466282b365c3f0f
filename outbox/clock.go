package outbox

import (
	"context"
	"time"
)

// latestEnd is beyond the end of every lease and heartbeat while the clock of the database goes on. One that ends later was written before that clock went
// back, or before a failover to a server whose clock is behind. $3 is the asker's own lease, for rows without one.
const latestEnd = `clock_timestamp() + 5 * greatest(lease, $3::interval)`

// A lease that is cut lasts for as long as its owner, if it is alive, believes: it has counted from before now.
const (
	cutLanes = `
WITH far AS MATERIALIZED (
	SELECT lane FROM {schema}.outbox_lane WHERE lease_until > clock_timestamp() + 5 * greatest(lease, $1::interval)
	ORDER BY lane FOR NO KEY UPDATE SKIP LOCKED)
UPDATE {schema}.outbox_lane l SET lease_until = clock_timestamp() + greatest(l.lease, $1::interval) FROM far WHERE l.lane = far.lane`

	cutHeartbeats = `
WITH far AS MATERIALIZED (
	SELECT owner FROM {schema}.outbox_projector WHERE seen_until > clock_timestamp() + 5 * greatest(lease, $1::interval)
	ORDER BY owner FOR NO KEY UPDATE SKIP LOCKED)
UPDATE {schema}.outbox_projector p SET seen_until = clock_timestamp() + greatest(p.lease, $1::interval) FROM far WHERE p.owner = far.owner`
)

// CutLeases has leases and heartbeats that end far ahead last for no longer than they do ordinarily, at least ttl. It returns how many they
// were. A projector that is alive renews its own.
func (s Relay) CutLeases(ctx context.Context, ttl time.Duration) (cut int64, err error) {
	for _, statement := range []string{cutLanes, cutHeartbeats} {
		n, err := s.sql.Exec(ctx, s.db, statement, ttl)
		if err != nil {
			return cut, wrap("cut leases", err)
		}
		cut += n
	}
	return cut, nil
}
