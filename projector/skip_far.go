package projector

import (
	"context"
	"hash/maphash"
	"slices"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

const (
	// farInterval is the shortest time between two looks far beyond the mark in one lane. A look reads up to
	// [lanedb.FarWindow] rows.
	farInterval = 2 * time.Second
	// farLanes is the largest number of lanes that one pass looks at, so that the other work of the pass does not
	// wait for long.
	farLanes = 4
)

// far publishes rows far behind the rows that stay, in lanes whose search is stuck. A search is stuck if a
// transaction that writes for long holds the mark where it is, and if the rows that stay fill the whole window of the
// search. Then the rows behind them would wait for that transaction.
//
// It remembers nothing and begins at the same place each time. That is the price for going past rows beyond the mark,
// where rows may still appear. It is safe for the order, because the whole stretch is read in one snapshot: a
// snapshot that shows a row shows all earlier rows of its key.
func (w *worker) far(ctx context.Context, group []*lane) (moved int, err error) {
	ctx, cancel := w.r.begun(ctx)
	defer cancel()
	if same, err := w.isSameServer(ctx); !same {
		return 0, err
	}
	low := w.r.mark.current()
	byLane := map[int16]*lane{}
	var cursors []lanedb.Cursor
	oldest := slices.SortedFunc(slices.Values(group), func(a, b *lane) int { return a.farSeen.Compare(b.farSeen) })
	for _, l := range oldest {
		if l.full && l.topics.stuck == low && len(cursors) < farLanes && time.Since(l.farSeen) >= farInterval {
			l.farSeen = time.Now()
			byLane[l.lease.Lane] = l
			cursors = append(cursors, lanedb.Cursor{Lease: l.lease, Position: l.at, After: l.topics.to})
		}
	}
	if len(cursors) == 0 {
		return 0, nil
	}
	infos, err := w.r.lanes.Log.ScanFar(ctx, cursors, w.stay)
	if err != nil {
		return 0, err
	}
	var ids []outboxdb.RowID
	part, taken := w.part(infos), map[int16]int{}
	for _, g := range infos {
		behind := g.Key != "" && byLane[g.Lane].topics.keys.waits(maphash.String(w.r.seed, g.Key), g.Seq)
		if !behind && taken[g.Lane] < part {
			taken[g.Lane]++
			ids = append(ids, g.RowID)
		}
	}
	if len(ids) == 0 {
		return 0, nil
	}
	rows, err := w.fetchPicked(ctx, byLane, ids)
	if err != nil {
		return 0, err
	}
	b, err := w.deliver(ctx, newBatch(byLane), rows)
	return b.moved, err
}
