package projector

import (
	"math"

	"github.com/oncebox/oncebox/internal/lanedb"
)

// cursors shares the rows of a batch out among lanes, at most so many for each (most). At first all lanes get equal parts. Lanes that have filled their part divide a whole
// batch among themselves. A lane that is ahead of the others gets a small part, but always some: an event in this
// lane may be urgent.
func cursors(lanes []*lane, short shortcut, batch, most int) []lanedb.Cursor {
	part := max(1, batch/len(lanes))
	least := max(1, part/8)
	var behind []pace
	for _, l := range lanes {
		if l.full && l.pace.density > 0 {
			behind = append(behind, l.pace)
		}
	}
	goal := meet(behind, batch)
	out := make([]lanedb.Cursor, len(lanes))
	for i, l := range lanes {
		quota := part
		if l.full && l.pace.density > 0 && batch > len(lanes) {
			quota = max(least, int(math.Ceil(l.pace.density*(goal-float64(l.pace.at)))))
		}
		l.pace.quota = int32(min(quota, most))
		out[i] = lanedb.Cursor{Lease: l.lease, Position: l.at, Quota: l.pace.quota, Taken: l.taken}
		l.short.cursor(short, &out[i])
	}
	return out
}

// note records how many rows each lane gave, for the next cursors.
func note(lanes []*lane, b *batch) {
	for _, l := range lanes {
		n := b.fetched[l.lease.Lane]
		l.full = n > 0 && n >= int(l.pace.quota) || b.cut[l.lease.Lane]
		l.pace.saw(n, b.first[l.lease.Lane], b.last[l.lease.Lane])
	}
}
