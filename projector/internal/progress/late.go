package progress

import (
	"slices"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// Strayed returns the lanes that jumped over a stretch on a shortcut that has ended: the fetches of that shortcut
// began further on than the position of the lane. The stretch may have rows now, of a transaction that was open and
// has ended.
func Strayed(lanes []*Lane, short Shortcut) (out []*Lane) {
	for _, l := range lanes {
		if l.Located && l.Short.N != short.N && l.Short.To > l.At.Sent {
			out = append(out, l)
		}
	}
	return out
}

// LateRows is the result of a scan of all lanes of a relay. The scan reads each page of the table that has rows of
// its lanes. Nearly every page has rows of the lanes of each worker, so one scan serves all workers.
type LateRows struct {
	Low      int64             // the mark before the scan
	Short    Shortcut          // the shortcut before the scan
	Of       map[int16]bool    // the lanes that were scanned
	From, To int64             // the stretch: numbers beyond From, To included
	All      bool              // the scan found all rows; false: there were too many
	Rows     map[int16][]int64 // their numbers, by lane
}

// Covers reports whether an earlier scan, of any age, already contains all rows that these lanes need, on the present
// shortcut.
//
// Its age does not matter. The lane has belonged to the same worker ever since, or it would have come nowhere on a
// shortcut. Rows that have left since the scan are in the lane's position, or not in the log any more, so they are
// not published twice.
func (f *LateRows) Covers(group []*Lane, short Shortcut) bool {
	return f.Of != nil && f.Short.N == short.N && !slices.ContainsFunc(group, func(l *Lane) bool {
		return !f.Of[l.Lease.Lane] || l.At.Sent < f.From || l.Short.To > f.To
	})
}

// IsDense reports whether at least every eighth number of the stretch belongs to a row in the log, published rows included. Such a stretch is short,
// because a scan returns at most [lanedb.MaxLate] rows. So fetches walk over few index entries there.
func (f *LateRows) IsDense() bool {
	rows := 0
	for _, of := range f.Rows {
		rows += len(of)
	}
	return int64(rows)*8 >= f.To-f.From
}

// NewLateRows begins a scan for lanes: the stretch of all of them together.
func NewLateRows(group []*Lane, low int64, short Shortcut) LateRows {
	f := LateRows{Low: low, Short: short, Of: map[int16]bool{}, From: group[0].At.Sent, Rows: map[int16][]int64{}}
	for _, l := range group {
		f.From, f.To, f.Of[l.Lease.Lane] = min(f.From, l.At.Sent), max(f.To, l.Short.To), true
	}
	return f
}

// LateBatch makes a batch for all unsent rows up to the number that each lane reached on the shortcut. It is like a
// fetch from the lanes' positions, and the same is true of it: all rows are of one snapshot, and the mark and the
// next shortcut were read before. So a lane whose rows have all left is done up to that number, or up to the mark if
// the mark is lower.
func LateBatch(group []*Lane, low int64, short Shortcut, by *Rules) (*Batch, []lanedb.Cursor) {
	b := NewBatch(map[int16]*Lane{}, by)
	b.Low, b.Short, b.upto = low, short, map[int16]int64{}
	cursors := make([]lanedb.Cursor, len(group))
	for i, l := range group {
		n := l.Lease.Lane
		b.Lanes[n], b.upto[n], l.More = l, l.Short.To, true
		cursors[i] = lanedb.Cursor{Lease: l.Lease, Position: l.At, After: l.Short.To}
		l.Short = schedule.Place{}
	}
	return b, cursors
}

// Reached returns the record for lanes in which no row was left: no rows, only the position that they have come to.
func (b *Batch) Reached() Out {
	o := Out{logged: map[int16][]int64{}}
	for n, l := range b.Lanes {
		if l.Located && !b.Left[n] {
			o.logged[n] = nil
		}
	}
	return o
}
