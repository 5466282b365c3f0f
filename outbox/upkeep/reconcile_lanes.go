package upkeep

import (
	"context"
	"maps"
	"math"
	"slices"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/outbox/tenants"
)

const (
	knownLanes = `SELECT lane FROM {schema}.outbox_lane`

	// strayLane finds the first lane with rows between two known lanes. Usually there is none, and no rows are read.
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
)

// lanes enters missing lanes: all lanes of each group that has tenants, and each lane with rows.
func (r *reconciler) lanes(ctx context.Context, found *Reconciled) error {
	l, err := r.up.box.Layout(ctx, r.up.box.On(r.up.box.DB))
	if err != nil {
		return err
	}
	missing, err := r.missingLanes(ctx, l)
	if err == nil && len(missing) > 0 {
		found.Lanes, err = r.exec(ctx, enterLanes, missing, l.Lanes)
	}
	return err
}

func (r *reconciler) missingLanes(ctx context.Context, l *outboxdb.Layout) (missing []int16, err error) {
	known := map[int16]bool{}
	if err := pgsql.Each(r.up.box.AdHoc().Query(ctx, r.up.box.DB, knownLanes), func(scan pgsql.Scan) error {
		var lane int16
		err := scan(&lane)
		known[lane] = true
		return err
	}); err != nil {
		return nil, err
	}
	moved, err := tenants.New(r.up.box).List(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range append(moved, tenants.Group{Group: 0}) {
		for n := range l.Lanes {
			lane := t.Group*int16(l.Lanes) + int16(n) //nolint:gosec // at most 32,767 lanes
			if !known[lane] {
				known[lane] = true
				missing = append(missing, lane)
			}
		}
	}
	ends := append(slices.Sorted(maps.Keys(known)), math.MaxInt16) // never a lane itself, see tenants.Tenants.Move
	after := int16(-1)
	for _, before := range ends {
		for before > after+1 {
			var lane int16
			if err := r.up.box.AdHoc().QueryRow(ctx, r.up.box.DB, strayLane, []any{after, before}, &lane); err != nil {
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
