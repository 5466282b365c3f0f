package outbox

import (
	"context"
	"maps"
	"math"
	"slices"
)

const (
	knownLanes = `SELECT lane FROM {schema}.outbox_lane`

	// strayLane finds the first lane between two others that rows are in. Ordinarily there is nothing between, and of the
	// backlog nothing is read.
	strayLane = `
SELECT coalesce(least(
	(SELECT o.lane FROM {schema}.outbox o WHERE o.lane > $1::int AND o.lane < $2::int ORDER BY o.lane LIMIT 1),
	(SELECT h.lane FROM {schema}.outbox_held h WHERE h.lane > $1::int AND h.lane < $2::int ORDER BY h.lane LIMIT 1)), -1)`

	// enterLanes gives the lanes epochs beyond all that they can have had before their entries were lost: a write of
	// a former owner must find another one.
	enterLanes = `
INSERT INTO {schema}.outbox_lane (lane, grp, epoch)
SELECT lane, lane / $2::int, extract(epoch FROM clock_timestamp())::bigint FROM unnest($1::smallint[]) m(lane)
ON CONFLICT DO NOTHING`

	// cutLeases leaves an hour: a projector that holds such a lane after all renews it within seconds.
	cutLeases = `
WITH far AS MATERIALIZED (
	SELECT lane FROM {schema}.outbox_lane WHERE lease_until > clock_timestamp() + interval '1 day' ORDER BY lane FOR NO KEY UPDATE)
UPDATE {schema}.outbox_lane l SET lease_until = clock_timestamp() + interval '1 hour' FROM far WHERE l.lane = far.lane`

	// forgetHeartbeats forgets projectors for which lanes would be set aside for ever. A projector that is alive is back at its
	// next heartbeat.
	forgetHeartbeats = `DELETE FROM {schema}.outbox_projector WHERE seen_until > clock_timestamp() + interval '1 day'`
)

// reconcileLanes enters the lanes of every group that has tenants, and those that rows are in, and ends what a wrong clock
// would make last.
func (s *reconciler) reconcileLanes(ctx context.Context, found *Reconciled) error {
	l, err := s.loadLayout(ctx, bunHandle{s.sql, s.db})
	if err != nil {
		return err
	}
	missing, err := s.missingLanes(ctx, l)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		if found.Lanes, err = s.exec(ctx, enterLanes, missing, l.lanes); err != nil {
			return err
		}
	}
	for _, statement := range []string{cutLeases, forgetHeartbeats} {
		n, err := s.exec(ctx, statement)
		if err != nil {
			return err
		}
		found.Leases += n
	}
	return nil
}

func (s *Store) missingLanes(ctx context.Context, l *layout) (missing []int16, err error) {
	known, err := scanLanes(s.adHoc().Query(ctx, s.db, knownLanes))
	if err != nil {
		return nil, err
	}
	tenants, err := s.Tenants(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range append(tenants, TenantGroup{Group: 0}) {
		for n := range l.lanes {
			lane := t.Group*int16(l.lanes) + int16(n) //nolint:gosec // at most 32,767 lanes
			if !known[lane] {
				known[lane] = true
				missing = append(missing, lane)
			}
		}
	}
	ends := append(slices.Sorted(maps.Keys(known)), math.MaxInt16) // never a lane, see MoveTenant
	after := int16(-1)
	for _, before := range ends {
		for before > after+1 {
			var lane int16
			if err := s.adHoc().QueryRow(ctx, s.db, strayLane, []any{after, before}, &lane); err != nil {
				return nil, err
			}
			if lane < 0 {
				break
			}
			missing, after = append(missing, lane), lane
		}
		after = before
	}
	return missing, nil
}
