package outbox

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// oldestOverdue looks at the first 100 unsent rows of each lane, because some of them may wait for their time or belong to a paused tenant, and at
// those of its held rows that were due first. Of the lanes that have a relay, and of those that have none, it returns the one whose row waits
// longest.
const oldestOverdue = `
WITH ` + lanesOfStats + `,` + pausesOfStats + `
SELECT DISTINCT ON (x.free) NOT x.free, coalesce(x.owner, ''), x.since, coalesce(r.error, ''), r.failed_at FROM (
	SELECT l.owner, l.free, least(fresh.since, due.since) AS since
	FROM lanes l
	LEFT JOIN LATERAL (
		SELECT min(greatest(o.created_at, o.not_before, p.resumed_at)) AS since FROM (
			SELECT o.created_at, o.not_before, o.tenant_id FROM {schema}.outbox o
			WHERE ` + unsentOf + ` AND o.seq > l.passed_to ORDER BY o.seq LIMIT 100) o LEFT JOIN pauses p USING (tenant_id)
		WHERE p.paused IS NOT TRUE) fresh ON true
	LEFT JOIN LATERAL (
		SELECT min(greatest(h.retry_after, p.resumed_at)) AS since FROM (
			SELECT h.retry_after, h.tenant_id FROM {schema}.outbox_held h
			WHERE h.lane = l.lane AND h.retry_after <= (SELECT clock_timestamp()) ORDER BY h.retry_after LIMIT 100) h LEFT JOIN pauses p USING (tenant_id)
		WHERE p.paused IS NOT TRUE) due ON true) x
LEFT JOIN {schema}.outbox_projector r ON r.owner = x.owner AND r.failed_at >= x.since
WHERE x.since < clock_timestamp() - interval '1 minute' ORDER BY x.free DESC, x.since`

// Overdue is an event that should have left more than a minute ago, and the relay of its lane.
type Overdue struct {
	// Since is when it was recorded, or the time to which it was delayed.
	Since time.Time
	// Relayed says that a relay has its lane: the broker is in trouble, or the relay does not keep up. Otherwise no relay is running, or none of
	// its group.
	Relayed bool
	// Owner is the relay that has the lane, or the relay that had it and vanished. "" if the lane was given back, or never had a relay.
	Owner string
	// Error is why the broker, or a topic, last took nothing from that relay, if that was so since then, and FailedAt when that was.
	Error    string
	FailedAt time.Time
}

// Overdue returns the oldest event that should have left, of the lanes without a relay, and then that of the lanes with one. Events of the last
// minute do not count: lanes are between two relays at times. Nor do events that wait behind others of their key, or whose tenant is paused.
func (s *Store) Overdue(ctx context.Context) ([]Overdue, error) {
	list, err := pgsql.Collect(s.sql.Query(ctx, s.db, oldestOverdue), func(scan pgsql.Scan, o *Overdue) error {
		var failed *time.Time
		if err := scan(&o.Relayed, &o.Owner, &o.Since, &o.Error, &failed); err != nil {
			return err
		}
		if failed != nil {
			o.FailedAt = *failed
		}
		return nil
	})
	return list, outboxdb.Wrap("look for events that should have left", err)
}
