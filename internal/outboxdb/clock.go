package outboxdb

// LatestEnd is beyond the end of every lease and heartbeat while the clock of the database goes on. One that ends later was written before that clock went
// back, or before a failover to a server whose clock is behind. $3 is the asker's own lease, for rows without one.
const LatestEnd = `clock_timestamp() + 5 * greatest(lease, $3::interval)`

// CutLanes and CutHeartbeats cut leases and heartbeats that end far ahead. $1 is the least that they last from now on. A lease that is cut lasts for
// as long as its owner, if it is alive, believes: it has counted from before now.
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
