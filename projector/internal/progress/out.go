package progress

import (
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
)

// Out holds rows that the broker has confirmed, and the way in which each is recorded.
//
// The cheap way is to leave a row where it is, in the log, and to record only the lane's position: one small write
// for a batch. The row is history from then on. The other way moves the row to outbox_sent, or deletes it if nothing
// is kept: one write for each row. It is needed for rows that a position cannot describe well.
type Out struct {
	logged map[int16][]int64 // numbers of rows that stay in the log, by lane; an empty list records the position alone
	Moved  []outboxdb.RowID  // rows that leave the log
	ends   map[int16]int64   // the end of the done part of each lane, once the rows are recorded
}

const (
	// maxAhead is the largest number of published rows that a position lists. The whole list is written with each
	// batch. It grows while a transaction stays open for long, because the lane is not done beyond the mark then.
	// Further rows are moved instead.
	maxAhead = 500
	// maxLate is the longest time between two publications of a lane for which a row with a lower number, published
	// later, may stay in the log. For such a row the time of the other publication is shown, which is wrong by this
	// much at most. Later rows are moved.
	maxLate = time.Second
	// recordEvery is the interval at which a position is written down if published rows are deleted. Nothing but
	// speed depends on it: the next owner begins there, and does not walk over the dead index entries of deleted
	// rows.
	recordEvery = 5 * time.Second
)

// Out decides which of the published rows stay in the log. A row up to the end of its lane is covered by the
// position. A row beyond it is listed in the position, as long as there is room. All other rows are moved, and so are
// rows that were published out of their turn or late.
func (b *Batch) Out(keeps bool) Out {
	o := Out{logged: map[int16][]int64{}, ends: map[int16]int64{}}
	room := map[int16]int{}
	b.findEnds(&o, keeps, room)
	for _, r := range b.Published {
		l := b.Lanes[r.Lane]
		end, done := o.ends[r.Lane]
		covered := done && r.Sequence <= end
		late := r.Sequence <= l.At.Upto && time.Since(l.reached) > maxLate
		if !keeps || !b.InTurn[r.Lane] || late || !covered && room[r.Lane] == 0 {
			o.Moved = append(o.Moved, outboxdb.RowID{Lane: r.Lane, Seq: r.Sequence})
			continue
		}
		if !covered {
			room[r.Lane]--
		}
		o.logged[r.Lane] = append(o.logged[r.Lane], r.Sequence)
	}
	return o
}

// findEnds finds the end of the done part of each lane, and the room for further rows in each position. A lane
// with rows that go to other tables is not done: these rows are in the log until that is written down, and a crash in
// between must not lose them.
func (b *Batch) findEnds(o *Out, keeps bool, room map[int16]int) {
	elsewhere := map[int16]bool{}
	for _, id := range b.Timed {
		elsewhere[id.Lane] = true
	}
	for n, l := range b.Lanes {
		if !l.Located || !b.InTurn[n] {
			continue
		}
		at := l.At
		if _, some := b.last[n]; some && !b.Left[n] && !elsewhere[n] && len(b.Outcomes[n]) == 0 {
			o.ends[n] = b.end(n, b.Low)
			at = at.Advance(o.ends[n])
			if !keeps && time.Since(l.recorded) >= recordEvery {
				o.logged[n] = nil
			}
		}
		room[n] = max(0, maxAhead-len(at.Ahead))
	}
}

// Rows returns the number of rows.
func (o Out) Rows() int {
	n := len(o.Moved)
	for _, seqs := range o.logged {
		n += len(seqs)
	}
	return n
}

// Recorded returns an id for each lane whose position is recorded. The ids have no sequence number.
func (o Out) Recorded() (ids []outboxdb.RowID) {
	for n := range o.logged {
		ids = append(ids, outboxdb.RowID{Lane: n})
	}
	return ids
}
