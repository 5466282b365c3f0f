package outbox

import (
	"context"
	"database/sql"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// LaneCounted is up to how many rows of a lane [Store.Lanes] counts.
const LaneCounted = 1000

// LaneState is what an operator sees of a lane. Each number of events goes up to [LaneCounted].
type LaneState struct {
	// Lane is its number, and Group the group of projectors that publishes it.
	Lane, Group int16
	// Owner is the projector that has it, "" if none has. Epoch counts its owners.
	Owner string
	Epoch int64
	// LeaseUntil is when another projector may take it, zero if none has it. Leased says that this is ahead.
	LeaseUntil time.Time
	Leased     bool
	// New events wait for their first try, those that wait for their time included until the owner has seen them. Claimed is how many of them may be on their
	// way to the broker; 0 on a standby, which does not know it.
	New, Claimed int64
	// Held events were refused and wait for their next try, or wait behind such an event or a dead letter.
	Held int64
	// Since is when the oldest of those events was recorded, or the time to which it was delayed. An event that waits for its time does not count, nor
	// does one of a paused tenant. Zero: nothing waits.
	Since time.Time
	// Age is how long ago that is, by the clock of the database.
	Age time.Duration
}

// Backlog is how many events of the lane wait to be published.
func (l *LaneState) Backlog() int64 { return l.New + l.Held }

// laneStates looks at the first rows of each lane. Limits are literals for the reason given at fetchRows, the time is asked for once for that given
// at dueRows.
const laneStates = `
WITH ` + lanesOfStats + `,` + pausesOfStats + `
SELECT l.lane, l.grp, coalesce(l.owner, ''), l.epoch, CASE WHEN l.owner IS NOT NULL THEN l.lease_until END, NOT lanes.free,
	fresh.n, fresh.claimed, held.n, least(fresh.since, held.since),
	coalesce(extract(epoch FROM (SELECT clock_timestamp()) - least(fresh.since, held.since)), 0)::float8
FROM lanes JOIN {schema}.outbox_lane l ON l.lane = lanes.lane
LEFT JOIN {schema}.outbox_claimed() taken ON taken.lane = l.lane
CROSS JOIN LATERAL (
	SELECT count(*) AS n, count(*) FILTER (WHERE o.seq <= taken.upto OR o.seq = ANY (taken.picked)) AS claimed,
		min(greatest(o.created_at, o.not_before)) FILTER (WHERE (o.not_before IS NULL OR o.not_before <= (SELECT clock_timestamp()))
			AND NOT EXISTS (SELECT FROM pauses p WHERE p.tenant_id = o.tenant_id AND p.paused)) AS since
	FROM (
		SELECT o.seq, o.created_at, o.not_before, o.tenant_id FROM {schema}.outbox o
		WHERE o.lane = lanes.lane AND o.seq > lanes.sent AND NOT o.seq <@ lanes.ahead ORDER BY o.seq LIMIT 1000) o) fresh
CROSS JOIN LATERAL (
	SELECT count(*) AS n, min(greatest(h.created_at, h.not_before))
		FILTER (WHERE NOT EXISTS (SELECT FROM pauses p WHERE p.tenant_id = h.tenant_id AND p.paused)) AS since
	FROM (
		SELECT h.created_at, h.not_before, h.tenant_id FROM {schema}.outbox_held h
		WHERE h.lane = lanes.lane AND (h.not_before IS NULL OR h.retry_count > 0) ORDER BY h.seq LIMIT 1000) h) held
ORDER BY l.lane`

// Lanes lists all lanes in the order of their numbers. It reads at most 2,000 rows of each, by an index, whatever the backlog is.
func (s *Store) Lanes(ctx context.Context) (list []LaneState, err error) {
	err = s.uncompiled(ctx, func(ctx context.Context, tx bun.Tx) error {
		list, err = pgsql.Collect(s.adHoc().Query(ctx, tx, laneStates), func(scan pgsql.Scan, l *LaneState) error {
			var until, since sql.NullTime
			var age float64
			if err := scan(&l.Lane, &l.Group, &l.Owner, &l.Epoch, &until, &l.Leased, &l.New, &l.Claimed, &l.Held, &since, &age); err != nil {
				return err
			}
			l.LeaseUntil, l.Since, l.Age = until.Time, since.Time, seconds(age)
			return nil
		})
		return err
	})
	return list, outboxdb.Wrap("list lanes", err)
}
