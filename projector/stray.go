package projector

import (
	"slices"

	"github.com/oncebox/oncebox/internal/lanedb"
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

// newLateRows begins a scan for lanes: the stretch of all of them together.
func newLateRows(group []*lane, low int64, short shortcut) lateRows {
	f := lateRows{low: low, short: short, of: map[int16]bool{}, from: group[0].at.Sent, rows: map[int16][]int64{}}
	for _, l := range group {
		f.from, f.to, f.of[l.lease.Lane] = min(f.from, l.at.Sent), max(f.to, l.short.to), true
	}
	return f
}

// lateBatch makes a batch for all unsent rows up to the number that each lane reached on the shortcut. It is like a
// fetch from the lanes' positions, and the same is true of it: all rows are of one snapshot, and the mark and the
// next shortcut were read before. So a lane whose rows have all left is done up to that number, or up to the mark if
// the mark is lower.
func lateBatch(group []*lane, low int64, short shortcut, by *rules) (*batch, []lanedb.Cursor) {
	b := newBatch(map[int16]*lane{}, by)
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
