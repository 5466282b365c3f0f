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
	few := w.few
	if few {
		rows, err = w.fetchFew(ctx, lanes, cursors)
	} else {
		rows, err = w.r.store.Fetch(ctx, cursors, w.r.p.cfg.batchBytes())
	}
	w.few = bringsFew(cursors, rows)
	switch {
	case err != nil:
		return nil, false, err
	case len(rows) == 0:
		return nil, !slices.ContainsFunc(cursors, func(c outbox.Cursor) bool { return len(c.While) > 0 }), nil
	case few:
		return rows, true, nil
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

// fewRows is up to how many rows of a fetch the next one takes at once what it reads.
const fewRows = 2 * outbox.FewRows

// bringsFew tells whether the next fetch of heads is likely to bring few rows: this one did, and no lane has filled its part.
func bringsFew(cursors []outbox.Cursor, rows []outbox.Row) bool {
	if len(rows) >= fewRows {
		return false
	}
	n := map[int16]int32{}
	for i := range rows {
		n[rows[i].Lane]++
	}
	return !slices.ContainsFunc(cursors, func(c outbox.Cursor) bool { return n[c.Lease.Lane] >= c.Quota })
}

// fetchFew reads the heads of the lanes and notes that they are taken, with one statement.
func (w *worker) fetchFew(ctx context.Context, lanes map[int16]*lane, cursors []outbox.Cursor) ([]outbox.Row, error) {
	look := w.r.mark.begin()
	rows, held, mark, err := w.r.store.FetchFew(ctx, cursors, w.r.p.cfg.batchBytes())
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	w.r.mark.took(look, mark)
	for i := range rows {
		l := lanes[rows[i].Lane]
		l.taken = max(l.taken, rows[i].Sequence)
		if !held[rows[i].Lane] && l.located {
			w.lost(ctx, l)
		}
	}
	return slices.DeleteFunc(rows, func(r outbox.Row) bool { return !held[r.Lane] }), nil
}

// lost is told that a lane is somebody else's. This worker does not know any more where it is.
func (w *worker) lost(ctx context.Context, l *lane) {
	l.located = false
	_ = w.forget(ctx, l, outbox.ErrFenced)
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

// takeRows notes what is taken and returns the rows of lanes that are still held.
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
			w.lost(ctx, l)
		}
	}
	return slices.DeleteFunc(rows, func(r outbox.Row) bool { return !r.Cut && !held[r.Lane] }), nil
}
