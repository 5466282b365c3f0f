package projector

import (
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
)

// out are rows that the broker confirmed, and what is to be written down of them.
type out struct {
	logged map[int16][]int64 // they stay where they are
	moved  []outboxdb.RowID  // they leave the log
	ends   map[int16]int64   // how far lanes are done, once that is written down
}

const (
	// maxAhead is how many published rows a position may list. Its entry is written anew with each batch, so what leaves while somebody's
	// writing transaction stays open for long is moved instead.
	maxAhead = 500
	// maxLate is for how long after a row with a higher number of its lane a row may be published that stays in the log. The time of
	// its publication is taken for that of the other.
	maxLate = time.Second
	// recordEvery is how often a position is written down where published rows are deleted. It spares the next owner the dead
	// entries of the index.
	recordEvery = 5 * time.Second
)

// out decides which of the published rows stay. Rows up to the end of a lane are covered by its position, and those beyond are listed in it.
func (b *batch) out(keeps bool) out {
	o := out{logged: map[int16][]int64{}, ends: map[int16]int64{}}
	room := map[int16]int{}
	b.findEnds(&o, keeps, room)
	for _, r := range b.published {
		l := b.lanes[r.Lane]
		end, done := o.ends[r.Lane]
		covered := done && r.Sequence <= end
		late := r.Sequence <= l.at.Upto && time.Since(l.reached) > maxLate
		if !keeps || !b.inTurn[r.Lane] || late || !covered && room[r.Lane] == 0 {
			o.moved = append(o.moved, outboxdb.RowID{Lane: r.Lane, Seq: r.Sequence})
			continue
		}
		if !covered {
			room[r.Lane]--
		}
		o.logged[r.Lane] = append(o.logged[r.Lane], r.Sequence)
	}
	return o
}

// findEnds finds how far lanes are done, and how much room there is in their positions. A lane is not done with rows that go elsewhere: they
// are in the log until that is written down.
func (b *batch) findEnds(o *out, keeps bool, room map[int16]int) {
	elsewhere := map[int16]bool{}
	for _, id := range b.timed {
		elsewhere[id.Lane] = true
	}
	for n, l := range b.lanes {
		if !l.located || !b.inTurn[n] {
			continue
		}
		at := l.at
		if _, some := b.last[n]; some && !b.left[n] && !elsewhere[n] && len(b.outcomes[n]) == 0 {
			o.ends[n] = b.end(n, b.low)
			at = at.Advance(o.ends[n])
			if !keeps && time.Since(l.recorded) >= recordEvery {
				o.logged[n] = nil
			}
		}
		room[n] = max(0, maxAhead-len(at.Ahead))
	}
}

// rows is how many there are.
func (o out) rows() int {
	n := len(o.moved)
	for _, seqs := range o.logged {
		n += len(seqs)
	}
	return n
}

// ids are those of the rows that stay, one for each lane.
func (o out) recorded() (ids []outboxdb.RowID) {
	for n := range o.logged {
		ids = append(ids, outboxdb.RowID{Lane: n})
	}
	return ids
}
