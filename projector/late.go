package projector

import (
	"context"
	"maps"
	"slices"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// strayed returns the lanes that have come further on a shortcut which has ended than they are.
func strayed(lanes []*lane, short shortcut) (out []*lane) {
	for _, l := range lanes {
		if l.located && l.short.n != short.n && l.short.to > l.at.Sent {
			out = append(out, l)
		}
	}
	return out
}

// late publishes what the transactions of a shortcut have left behind, when one of them has ended. A fetch would find it, too, and would go through
// the index entries of all that left meanwhile. What this does not bring to an end is left to the fetches: each stretch is tried once.
func (w *worker) late(ctx context.Context, group []*lane) (moved int, err error) {
	ctx, cancel := w.r.begun(ctx)
	defer cancel()
	w.more = true
	found, err := w.r.lateRows(ctx, group)
	b, cursors := lateBatch(group, found.low, found.short)
	if err != nil || !found.all {
		return 1, err // no reason to pause
	}
	var ids []outboxdb.RowID
	for _, c := range cursors {
		for _, seq := range found.rows[c.Lease.Lane] {
			if seq <= c.After && !c.Position.Has(seq) {
				ids = append(ids, outboxdb.RowID{Lane: c.Lease.Lane, Seq: seq})
			}
		}
	}
	moved, err = w.deliverAll(ctx, b, ids)
	if err != nil {
		return moved, err
	}
	b.advance(group)
	_, err = w.settleFresh(ctx, b.lanes, b.reached())
	return max(1, moved), err
}

// lateRows is what a scan has found in all lanes of a relay. The scan reads each page of the table in which rows of its lanes lie, and those of
// each worker lie in nearly all pages, so one scan is for all workers.
type lateRows struct {
	low      int64
	short    shortcut
	of       map[int16]bool // the lanes
	from, to int64
	all      bool
	rows     map[int16][]int64
}

// covers tells whether the scan saw all that the lanes have to do, on the shortcut of now. It does not matter when it was: a lane was the same
// worker's ever since, or it would have come nowhere on a shortcut, and what has left since then is in its position or not in the log any more.
func (f *lateRows) covers(group []*lane, short shortcut) bool {
	return f.of != nil && f.short.n == short.n && !slices.ContainsFunc(group, func(l *lane) bool {
		return !f.of[l.lease.Lane] || l.at.Sent < f.from || l.short.to > f.to
	})
}

// lateRows returns what is in the log up to where the lanes came on a shortcut. The first worker that asks looks, the others wait for it.
func (r *relay) lateRows(ctx context.Context, group []*lane) (lateRows, error) {
	r.lateScan.Lock()
	defer r.lateScan.Unlock()
	low, short := r.mark.current(), r.mark.shortcut() // before the scan begins, see watermark
	if r.latest.covers(group, short) {
		return r.latest, nil
	}
	f := lateRows{low: low, short: short, of: map[int16]bool{}, from: group[0].at.Sent, rows: map[int16][]int64{}}
	for _, l := range group {
		f.from, f.to, f.of[l.lease.Lane] = min(f.from, l.at.Sent), max(f.to, l.short.to), true
	}
	for _, w := range r.workers {
		for _, l := range w.leases() {
			f.of[l.Lane] = true
		}
	}
	r.latest = lateRows{}
	ids, all, err := r.lanes.Log.ScanLate(ctx, slices.Sorted(maps.Keys(f.of)), f.from, f.to, group[0].lease.Incarnation)
	if f.all = all; err != nil || !all {
		return f, err
	}
	for _, id := range ids {
		f.rows[id.Lane] = append(f.rows[id.Lane], id.Seq)
	}
	r.latest = f
	return f, nil
}

// lateBatch is for all that is unsent up to where the lanes came on a shortcut. It is a fetch from their positions, and what is true of a fetch is true of
// it: all rows are of one snapshot, and the mark and the next shortcut were read before. So a lane is done up to the mark, if that is lower.
func lateBatch(group []*lane, low int64, short shortcut) (*batch, []lanedb.Cursor) {
	b := newBatch(map[int16]*lane{})
	b.low, b.short, b.upto = low, short, map[int16]int64{}
	cursors := make([]lanedb.Cursor, len(group))
	for i, l := range group {
		n := l.lease.Lane
		b.lanes[n], b.upto[n], l.more = l, l.short.to, true
		cursors[i] = lanedb.Cursor{Lease: l.lease, Position: l.at, After: l.short.to}
		l.short = passed{}
	}
	return b, cursors
}

// deliverAll publishes rows that a scan has found, in batches. Of a lane in which something is left the rest is left as well: it may be of the
// same key.
func (w *worker) deliverAll(ctx context.Context, all *batch, ids []outboxdb.RowID) (moved int, err error) {
	for len(ids) > 0 {
		part := ids[:min(len(ids), w.batch(len(all.lanes)))]
		rows, err := w.fetchPicked(ctx, all.lanes, part)
		if err != nil {
			return moved, err
		}
		cut := map[int16]int64{}
		rows = slices.DeleteFunc(rows, func(r outboxdb.Row) bool {
			if r.Cut {
				cut[r.Lane] = r.Sequence
			}
			return r.Cut
		})
		b, err := w.deliver(ctx, newBatch(all.lanes), rows)
		if moved += b.moved; err != nil {
			return moved, err
		}
		maps.Copy(all.left, b.left)
		var rest []outboxdb.RowID
		for i, id := range ids {
			begins, some := cut[id.Lane]
			if again := some && id.Seq >= begins; (again || i >= len(part)) && !all.left[id.Lane] {
				rest = append(rest, id)
			}
		}
		ids = rest
	}
	return moved, nil
}

// reached is for writing down where the lanes are in which nothing was left.
func (b *batch) reached() out {
	o := out{logged: map[int16][]int64{}}
	for n, l := range b.lanes {
		if l.located && !b.left[n] {
			o.logged[n] = nil
		}
	}
	return o
}
