package projector

import (
	"context"
	"slices"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// fetchHeads reads the first unsent rows of the lanes, and notes in the database that they are taken. sure is false
// if the fetch used a shortcut and found nothing: the shortcut may have ended, so rows may exist.
//
// There are two ways. If few rows are expected, one statement reads and takes them. Otherwise the rows are read
// first, cut to Config.BatchBytes, and only the rows that are left are taken by a second statement. A row that is
// taken in vain would be sent apart by the next owner if this one dies.
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

// fewRows is the number of rows in a fetch from which on the next fetch does not take its rows at once any more.
const fewRows = 2 * lanedb.FewRows

// bringsFew reports whether the next fetch of heads is likely to bring few rows: this one did, and no lane has filled
// its quota.
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

// fetchFew reads the heads of the lanes and notes that they are taken, with one statement. Rows of a lane that was
// lost meanwhile are left out.
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

// lost records that a lane belongs to another projector. This worker does not know the lane's position and blocks any
// more.
func (w *worker) lost(ctx context.Context, l *lane) {
	l.located = false
	_ = w.forget(ctx, l, lanedb.ErrFenced)
}

// fetchPicked reads rows that a scan has found, and notes that they are taken. They are noted one by one (Picked): unsent rows lie between them,
// and these are not on their way.
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

// takeRows notes the rows that are about to be published, and returns the rows of lanes that are still held. A lane
// that was lost between the read and the note is left out: its new owner may be publishing the same rows. Rows that
// are cut stay in the answer, since they are not published.
//
// The statement is also a look at the sequence, so a busy relay moves its mark without extra statements, see
// watermark.took.
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
