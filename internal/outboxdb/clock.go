package outboxdb

// LatestEnd is a time beyond the end of every lease and heartbeat, as long as the clock of the database only goes
// forward. A lease that ends later was written before the clock went back, or before a failover to a server whose
// clock is behind. $3 is the lease of the caller, for rows without one.
const LatestEnd = `clock_timestamp() + 5 * greatest(lease, $3::interval)`

// CutLanes and CutHeartbeats cut leases and heartbeats that end far ahead. From now on they last at least $1. That is
// safe for an owner that is alive: it has counted the same length from an earlier moment, so it stops before the end
// of the lease that is cut.
const (
	CutLanes = `
WITH far AS MATERIALIZED (
	SELECT lane FROM {schema}.outbox_lane WHERE lease_until > clock_timestamp() + 5 * greatest(lease, $1::interval)
	ORDER BY lane FOR NO KEY UPDATE SKIP LOCKED)
UPDATE {schema}.outbox_lane l SET lease_until = clock_timestamp() + greatest(l.lease, $1::interval) FROM far WHERE l.lane = far.lane`

	CutHeartbeats = `
WITH far AS MATERIALIZED (
	SELECT owner FROM {schema}.outbox_projector WHERE seen_until > clock_timestamp() + 5 * greatest(lease, $1::interval)
	ORDER BY owner FOR NO KEY UPDATE SKIP LOCKED)
UPDATE {schema}.outbox_projector p SET seen_until = clock_timestamp() + greatest(p.lease, $1::interval) FROM far WHERE p.owner = far.owner`
)
