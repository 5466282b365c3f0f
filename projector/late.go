package projector

import (
	"context"
	"maps"
	"slices"

	"github.com/oncebox/oncebox/outbox"
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
	low, short := w.r.mark.current(), w.r.mark.shortcut() // before the scan begins, see watermark
	b, cursors := lateBatch(group, low, short)
	w.more = true
	ids, all, err := w.r.store.ScanLate(ctx, cursors)
	if err != nil || !all {
		return 1, err // no reason to pause
	}
	moved, err = w.deliverAll(ctx, b, ids)
	if err != nil {
		return moved, err
	}
	b.advance(group)
	_, err = w.settleFresh(ctx, b.lanes, b.reached())
	return max(1, moved), err
}

// lateBatch is for all that is unsent up to where the lanes came on a shortcut. It is a fetch from their positions, and what is true of a fetch is true of
// it: all rows are of one snapshot, and the mark and the next shortcut were read before. So a lane is done up to the mark, if that is lower.
func lateBatch(group []*lane, low int64, short shortcut) (*batch, []outbox.Cursor) {
	b := newBatch(map[int16]*lane{})
	b.low, b.short, b.upto = low, short, map[int16]int64{}
	cursors := make([]outbox.Cursor, len(group))
	for i, l := range group {
		n := l.lease.Lane
		b.lanes[n], b.upto[n], l.more = l, l.short.to, true
		cursors[i] = outbox.Cursor{Lease: l.lease, Position: l.at, After: l.short.to}
		l.short = passed{}
	}
	return b, cursors
}

// deliverAll publishes rows that a scan has found, in batches. Of a lane in which something is left the rest is left as well: it may be of the
// same key.
func (w *worker) deliverAll(ctx context.Context, all *batch, ids []outbox.RowID) (moved int, err error) {
	for len(ids) > 0 {
		part := ids[:min(len(ids), w.batch(len(all.lanes)))]
		rows, err := w.fetchPicked(ctx, all.lanes, part)
		if err != nil {
			return moved, err
		}
		cut := map[int16]int64{}
		rows = slices.DeleteFunc(rows, func(r outbox.Row) bool {
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
		var rest []outbox.RowID
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
