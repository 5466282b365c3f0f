package projector

import (
	"context"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// mostReleased is the largest number of keys that one pass releases. An operator may discard the dead letters of many
// more keys at once.
const mostReleased = 500

// release handles keys that are stalled: they are blocked, but none of their rows is due or ever will be, because an
// operator discarded the head. It makes the next row of each key due, or lifts the block if there is no row. Until
// then, new events of such a key become held rows, so the order is kept.
func (w *worker) release(ctx context.Context, group []*lane) (moved int, err error) {
	lanes := map[int16]*lane{}
	var ids []outboxdb.RowID
	var keys []lanedb.LaneKey
	for _, l := range group {
		if l.loaded < 0 || len(l.stalled) == 0 || len(keys) == mostReleased {
			continue
		}
		n := min(len(l.stalled), mostReleased-len(keys))
		for _, key := range l.stalled[:n] {
			keys = append(keys, lanedb.LaneKey{Lane: l.lease.Lane, Key: key})
		}
		l.stalled = l.stalled[n:]
		lanes[l.lease.Lane] = l
		ids = append(ids, outboxdb.RowID{Lane: l.lease.Lane})
	}
	if len(keys) == 0 {
		return 0, nil
	}
	ctx, cancel := w.r.begun(ctx)
	defer cancel()
	w.due = dueTime{}
	leases := loadedLeasesOf(lanes, ids)
	lifted, held, err := w.r.lanes.Held.ReleaseKeys(ctx, leases, keys)
	if err = w.forgetUnless(ctx, lanes, leases, held, err); err != nil {
		return 0, err
	}
	for _, k := range lifted {
		delete(lanes[k.Lane].blocks, k.Key)
	}
	w.more = true // rows of released keys may be due, or in the lanes
	return len(keys), nil
}
