package projector

import (
	"context"
	"slices"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/projector/internal/progress"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// fetcher reads rows for one worker, and notes in the database that they are taken. The note is all that a successor
// finds if this process is killed by a row: it says which rows to send apart, see isolator.
type fetcher struct {
	db      lanedb.Lanes
	mark    *mark
	settle  *settler
	silence *schedule.Silence
	size    int   // Config.BatchSize
	bytes   int64 // Config.BatchBytes; 0: no bound
	few     bool  // the last fetch of heads brought few rows
}

// batch returns the number of rows to send at once from a number of lanes.
func (f *fetcher) batch(lanes int) int { return f.silence.Batch(f.size, lanes) }

// fetchHeads reads the first unsent rows of the lanes, and notes in the database that they are taken. sure is false
// if the fetch used a shortcut and found nothing: the shortcut may have ended, so rows may exist.
//
// There are two ways. If few rows are expected, one statement reads and takes them. Otherwise the rows are read
// first, cut to Config.BatchBytes, and only the rows that are left are taken by a second statement. A row that is
// taken in vain would be sent apart by the next owner if this one dies.
func (f *fetcher) fetchHeads(
	ctx context.Context, lanes map[int16]*progress.Lane, group []*progress.Lane, short progress.Shortcut,
) (rows []outboxdb.Row, sure bool, err error) {
	few, most := f.few, lanedb.MaxFetch
	if few {
		most = lanedb.FewRows
	}
	cursors := progress.Cursors(group, short, f.batch(len(group)), most)
	if few {
		rows, err = f.fetchFew(ctx, lanes, cursors)
	} else {
		rows, err = f.db.Log.Fetch(ctx, cursors, f.bytes)
	}
	// A wrong guess costs little: rows beyond FewRows come with the next fetch.
	f.few = bringsFew(cursors, rows)
	switch {
	case err != nil:
		return nil, false, err
	case len(rows) == 0:
		return nil, !progress.AreOnShortcut(cursors), nil
	case few:
		return rows, true, nil
	}
	// The rows of a lane are noted by their highest number, and not one by one: the unsent rows below it were read
	// with it. Cut rows are not on their way.
	upto := map[int16]int64{}
	for i := range rows {
		if r := &rows[i]; !r.Cut {
			upto[r.Lane] = max(upto[r.Lane], r.Sequence)
		}
	}
	var taken []lanedb.Taken
	for n, seq := range upto {
		l := lanes[n]
		l.Taken = max(l.Taken, seq)
		taken = append(taken, lanedb.Taken{Lease: l.Lease, Upto: l.Taken})
	}
	rows, err = f.takeRows(ctx, lanes, taken, rows)
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
func (f *fetcher) fetchFew(ctx context.Context, lanes map[int16]*progress.Lane, cursors []lanedb.Cursor) ([]outboxdb.Row, error) {
	look := f.mark.begin()
	rows, held, mark, err := f.db.Log.FetchFew(ctx, cursors, f.bytes)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	f.mark.took(look, mark)
	for i := range rows {
		l := lanes[rows[i].Lane]
		l.Taken = max(l.Taken, rows[i].Sequence) // the latest note counts, so it must not fall behind an earlier one
		if !held[rows[i].Lane] && l.Located {
			f.settle.lost(ctx, l)
		}
	}
	return slices.DeleteFunc(rows, func(r outboxdb.Row) bool { return !held[r.Lane] }), nil
}

// fetchPicked reads rows that a scan has found, and notes that they are taken. They are noted one by one (Picked): unsent rows lie between them,
// and these are not on their way.
func (f *fetcher) fetchPicked(ctx context.Context, lanes map[int16]*progress.Lane, ids []outboxdb.RowID) ([]outboxdb.Row, error) {
	rows, err := f.db.Log.FetchRows(ctx, progress.LeasesOf(lanes, ids), ids, f.bytes)
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
		taken = append(taken, lanedb.Taken{Lease: lanes[n].Lease, Upto: lanes[n].Taken, Picked: seqs})
	}
	return f.takeRows(ctx, lanes, taken, rows)
}

// takeRows notes the rows that are about to be published, and returns the rows of lanes that are still held. A lane
// that was lost between the read and the note is left out: its new owner may be publishing the same rows. Rows that
// are cut stay in the answer, since they are not published.
//
// The statement is also a look at the sequence, so a busy relay moves its mark without extra statements, see
// progress.Watermark.
func (f *fetcher) takeRows(ctx context.Context, lanes map[int16]*progress.Lane, taken []lanedb.Taken, rows []outboxdb.Row) ([]outboxdb.Row, error) {
	slices.SortFunc(taken, func(a, b lanedb.Taken) int { return int(a.Lease.Lane) - int(b.Lease.Lane) })
	look := f.mark.begin()
	held, mark, err := f.db.Log.Take(ctx, taken)
	if err != nil {
		return nil, err
	}
	f.mark.took(look, mark)
	for _, t := range taken {
		if l := lanes[t.Lease.Lane]; !held[t.Lease.Lane] {
			f.settle.lost(ctx, l)
		}
	}
	return slices.DeleteFunc(rows, func(r outboxdb.Row) bool { return !r.Cut && !held[r.Lane] }), nil
}
