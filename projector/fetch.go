package projector

import (
	"context"
	"slices"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// fetchHeads reads the heads of the lanes and notes that they are taken. sure tells whether there are no other ones: a shortcut that gives nothing may
// have ended.
func (w *worker) fetchHeads(ctx context.Context, lanes map[int16]*lane, group []*lane, short shortcut) (rows []outboxdb.Row, sure bool, err error) {
	cursors := w.cursors(group, short)
	few := w.few
	if few {
		rows, err = w.fetchFew(ctx, lanes, cursors)
	} else {
		rows, err = w.r.lanes.Log.Fetch(ctx, cursors, w.r.p.cfg.batchBytes())
	}
	w.few = bringsFew(cursors, rows)
	switch {
	case err != nil:
		return nil, false, err
	case len(rows) == 0:
		return nil, !slices.ContainsFunc(cursors, func(c lanedb.Cursor) bool { return len(c.While) > 0 }), nil
	case few:
		return rows, true, nil
	}
	upto := map[int16]int64{}
	for i := range rows {
		if r := &rows[i]; !r.Cut {
			upto[r.Lane] = max(upto[r.Lane], r.Sequence)
		}
	}
	var taken []lanedb.Taken
	for n, seq := range upto {
		l := lanes[n]
		l.taken = max(l.taken, seq)
		taken = append(taken, lanedb.Taken{Lease: l.lease, Upto: l.taken})
	}
	rows, err = w.takeRows(ctx, lanes, taken, rows)
	return rows, true, err
}

// fewRows is up to how many rows of a fetch the next one takes at once what it reads.
const fewRows = 2 * lanedb.FewRows

// bringsFew tells whether the next fetch of heads is likely to bring few rows: this one did, and no lane has filled its part.
func bringsFew(cursors []lanedb.Cursor, rows []outboxdb.Row) bool {
	if len(rows) >= fewRows {
		return false
	}
	n := map[int16]int32{}
	for i := range rows {
		n[rows[i].Lane]++
	}
	return !slices.ContainsFunc(cursors, func(c lanedb.Cursor) bool { return n[c.Lease.Lane] >= c.Quota })
}

// fetchFew reads the heads of the lanes and notes that they are taken, with one statement.
func (w *worker) fetchFew(ctx context.Context, lanes map[int16]*lane, cursors []lanedb.Cursor) ([]outboxdb.Row, error) {
	look := w.r.mark.begin()
	rows, held, mark, err := w.r.lanes.Log.FetchFew(ctx, cursors, w.r.p.cfg.batchBytes())
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
	return slices.DeleteFunc(rows, func(r outboxdb.Row) bool { return !held[r.Lane] }), nil
}

// lost is told that a lane is somebody else's. This worker does not know any more where it is.
func (w *worker) lost(ctx context.Context, l *lane) {
	l.located = false
	_ = w.forget(ctx, l, lanedb.ErrFenced)
}

// fetchPicked reads rows that a scan has found and notes that they are taken.
func (w *worker) fetchPicked(ctx context.Context, lanes map[int16]*lane, ids []outboxdb.RowID) ([]outboxdb.Row, error) {
	rows, err := w.r.lanes.Log.FetchRows(ctx, leasesOf(lanes, ids), ids, w.r.p.cfg.batchBytes())
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	picked := map[int16][]int64{}
	for i := range rows {
		if r := &rows[i]; !r.Cut {
			picked[r.Lane] = append(picked[r.Lane], r.Sequence)
		}
	}
	var taken []lanedb.Taken
	for n, seqs := range picked {
		taken = append(taken, lanedb.Taken{Lease: lanes[n].lease, Upto: lanes[n].taken, Picked: seqs})
	}
	return w.takeRows(ctx, lanes, taken, rows)
}

// takeRows notes what is taken and returns the rows of lanes that are still held.
func (w *worker) takeRows(ctx context.Context, lanes map[int16]*lane, taken []lanedb.Taken, rows []outboxdb.Row) ([]outboxdb.Row, error) {
	slices.SortFunc(taken, func(a, b lanedb.Taken) int { return int(a.Lease.Lane) - int(b.Lease.Lane) })
	look := w.r.mark.begin()
	held, mark, err := w.r.lanes.Log.Take(ctx, taken)
	if err != nil {
		return nil, err
	}
	w.r.mark.took(look, mark)
	for _, t := range taken {
		if l := lanes[t.Lease.Lane]; !held[t.Lease.Lane] {
			w.lost(ctx, l)
		}
	}
	return slices.DeleteFunc(rows, func(r outboxdb.Row) bool { return !r.Cut && !held[r.Lane] }), nil
}
