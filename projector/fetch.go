package projector

import (
	"context"
	"slices"

	"github.com/oncebox/oncebox/outbox"
)

// fetchHeads reads the heads of the lanes and notes that they are taken. sure tells whether there are no other ones: a shortcut that gives nothing may
// have ended.
func (w *worker) fetchHeads(ctx context.Context, lanes map[int16]*lane, group []*lane, short shortcut) (rows []outbox.Row, sure bool, err error) {
	cursors := w.cursors(group, short)
	rows, err = w.r.store.Fetch(ctx, cursors, w.r.p.cfg.batchBytes())
	if err != nil || len(rows) == 0 {
		return nil, !slices.ContainsFunc(cursors, func(c outbox.Cursor) bool { return len(c.While) > 0 }), err
	}
	upto := map[int16]int64{}
	for i := range rows {
		if r := &rows[i]; !r.Cut {
			upto[r.Lane] = max(upto[r.Lane], r.Sequence)
		}
	}
	var taken []outbox.Taken
	for n, seq := range upto {
		l := lanes[n]
		l.taken = max(l.taken, seq)
		taken = append(taken, outbox.Taken{Lease: l.lease, Upto: l.taken})
	}
	rows, err = w.takeRows(ctx, lanes, taken, rows)
	return rows, true, err
}

// fetchPicked reads rows that a scan has found and notes that they are taken.
func (w *worker) fetchPicked(ctx context.Context, lanes map[int16]*lane, ids []outbox.RowID) ([]outbox.Row, error) {
	rows, err := w.r.store.FetchRows(ctx, leasesOf(lanes, ids), ids, w.r.p.cfg.batchBytes())
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	picked := map[int16][]int64{}
	for i := range rows {
		if r := &rows[i]; !r.Cut {
			picked[r.Lane] = append(picked[r.Lane], r.Sequence)
		}
	}
	var taken []outbox.Taken
	for n, seqs := range picked {
		taken = append(taken, outbox.Taken{Lease: lanes[n].lease, Upto: lanes[n].taken, Picked: seqs})
	}
	return w.takeRows(ctx, lanes, taken, rows)
}

// takeRows notes what is taken and returns the rows of lanes that are still held. Of a lane that is lost this worker does not know any more where
// it is.
func (w *worker) takeRows(ctx context.Context, lanes map[int16]*lane, taken []outbox.Taken, rows []outbox.Row) ([]outbox.Row, error) {
	slices.SortFunc(taken, func(a, b outbox.Taken) int { return int(a.Lease.Lane) - int(b.Lease.Lane) })
	look := w.r.mark.begin()
	held, mark, err := w.r.store.Take(ctx, taken)
	if err != nil {
		return nil, err
	}
	w.r.mark.took(look, mark)
	for _, t := range taken {
		if l := lanes[t.Lease.Lane]; !held[t.Lease.Lane] {
			l.located = false
			_ = w.forget(ctx, l, outbox.ErrFenced)
		}
	}
	return slices.DeleteFunc(rows, func(r outbox.Row) bool { return !r.Cut && !held[r.Lane] }), nil
}
