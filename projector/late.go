package projector

import (
	"context"
	"maps"
	"slices"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// strayed returns the lanes that jumped over a stretch on a shortcut that has ended: the fetches of that shortcut
// began further on than the position of the lane. The stretch may have rows now, of a transaction that was open and
// has ended.
func strayed(lanes []*lane, short shortcut) (out []*lane) {
	for _, l := range lanes {
		if l.located && l.short.n != short.n && l.short.to > l.at.Sent {
			out = append(out, l)
		}
	}
	return out
}

// late publishes the rows of the transactions that a shortcut has jumped over, when one of them has ended.
//
// A fetch would find these rows too. But it would walk over the dead index entries of all rows that left meanwhile,
// which can be millions, and it would do so in each lane. A scan by pages of the table is much cheaper. Each stretch
// is tried once: if there are too many rows, or a row stays, the fetches do the rest.
func (w *worker) late(ctx context.Context, group []*lane) (moved int, err error) {
	ctx, cancel := w.r.begun(ctx)
	defer cancel()
	w.more = true
	found, err := w.r.lateRows(ctx, group)
	b, cursors := lateBatch(group, found.low, found.short)
	if err != nil || !found.all {
		return 1, err // the fetches have to find the rows: no pause
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

// lateRows is the result of a scan of all lanes of a relay. The scan reads each page of the table that has rows of
// its lanes. Nearly every page has rows of the lanes of each worker, so one scan serves all workers.
type lateRows struct {
	low      int64             // the mark before the scan
	short    shortcut          // the shortcut before the scan
	of       map[int16]bool    // the lanes that were scanned
	from, to int64             // the stretch: numbers beyond from, up to to
	all      bool              // the scan found all rows; false: there were too many
	rows     map[int16][]int64 // their numbers, by lane
}

// covers reports whether an earlier scan, of any age, already contains all rows that these lanes need, on the present
// shortcut.
//
// Its age does not matter. The lane has belonged to the same worker ever since, or it would have come nowhere on a
// shortcut. Rows that have left since the scan are in the lane's position, or not in the log any more, so they are
// not published twice.
func (f *lateRows) covers(group []*lane, short shortcut) bool {
	return f.of != nil && f.short.n == short.n && !slices.ContainsFunc(group, func(l *lane) bool {
		return !f.of[l.lease.Lane] || l.at.Sent < f.from || l.short.to > f.to
	})
}

// lateRows returns the rows in the log up to the furthest number that the lanes reached on a shortcut. The first
// worker that asks scans, the others wait for it and use its result.
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

// lateBatch makes a batch for all unsent rows up to the number that each lane reached on the shortcut. It is like a
// fetch from the lanes' positions, and the same is true of it: all rows are of one snapshot, and the mark and the
// next shortcut were read before. So a lane whose rows have all left is done up to that number, or up to the mark if
// the mark is lower.
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

// deliverAll publishes rows that a scan has found, in batches. If a row of a lane stays, all later rows of this lane
// stay too: they may be of the same key. Rows that did not fit into the bytes of a batch come first in the next one.
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

// reached returns the record for lanes in which no row was left: no rows, only the position that they have come to.
func (b *batch) reached() out {
	o := out{logged: map[int16][]int64{}}
	for n, l := range b.lanes {
		if l.located && !b.left[n] {
			o.logged[n] = nil
		}
	}
	return o
}
