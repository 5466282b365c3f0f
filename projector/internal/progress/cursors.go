package progress

import (
	"math"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// Cursors shares the rows of a batch out among lanes, at most so many for each lane (most). At first all lanes get
// equal parts. Lanes that have filled their part divide a whole batch among themselves. A lane that is ahead of the
// others gets a small part, but always some: an event in this lane may be urgent.
func Cursors(lanes []*Lane, short Shortcut, batch, most int) []lanedb.Cursor {
	part := max(1, batch/len(lanes))
	least := max(1, part/8)
	var behind []schedule.Pace
	for _, l := range lanes {
		if l.Full && l.pace.Density > 0 {
			behind = append(behind, l.pace)
		}
	}
	goal := schedule.Meet(behind, batch)
	out := make([]lanedb.Cursor, len(lanes))
	for i, l := range lanes {
		quota := part
		if l.Full && l.pace.Density > 0 && batch > len(lanes) {
			quota = max(least, int(math.Ceil(l.pace.Density*(goal-float64(l.pace.At)))))
		}
		l.pace.Quota = int32(min(quota, most, lanedb.MaxFetch)) //nolint:gosec // MaxFetch fits
		out[i] = lanedb.Cursor{Lease: l.Lease, Position: l.At, Quota: l.pace.Quota, Taken: l.Taken}
		short.begin(&out[i], l.Short)
	}
	return out
}

// NoteFetched records how many rows each lane gave, for the next cursors.
func NoteFetched(lanes []*Lane, b *Batch) {
	for _, l := range lanes {
		n := b.fetched[l.Lease.Lane]
		l.Full = n > 0 && n >= int(l.pace.Quota) || b.Cut[l.Lease.Lane]
		l.pace.Saw(n, b.first[l.Lease.Lane], b.last[l.Lease.Lane])
	}
}
