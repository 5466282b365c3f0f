package projector

import (
	"cmp"
	"math"
	"slices"

	"github.com/oncebox/oncebox/internal/lanedb"
)

// pace is the speed of a lane. A batch is shared out among the lanes of a worker so that lanes with a backlog keep
// step: they reach the same place in the sequence together, however many rows each has on the way there.
//
// With equal parts, lanes with few rows would run far ahead of lanes with many rows. A page of the table holds rows
// of many lanes. It would be read, changed and written once for each lane instead of once for all.
type pace struct {
	at      int64   // the number of the last row that was fetched
	density float64 // rows per number of the sequence, an average that follows the latest fetches
	quota   int32   // the number of rows that the last fetch asked for
}

// saw takes the result of a fetch: n rows, with numbers from first to last.
func (p *pace) saw(n int, first, last int64) {
	if n == 0 {
		p.density = 0
		return
	}
	from := p.at
	if from <= 0 || from >= last {
		from = first - 1
	}
	now := float64(n) / float64(last-from)
	if p.density > 0 {
		now = (now + p.density) / 2
	}
	p.at, p.density = last, now
}

// cursors shares the batch out. At first all lanes get equal parts. Lanes that have filled their part divide a whole
// batch among themselves. A lane that is ahead of the others gets a small part, but always some: an event in this
// lane may be urgent.
func (w *worker) cursors(lanes []*lane, short shortcut) []lanedb.Cursor {
	batch := w.batch(len(lanes))
	part := max(1, batch/len(lanes))
	least := max(1, part/8)
	goal := meet(lanes, batch)
	out := make([]lanedb.Cursor, len(lanes))
	for i, l := range lanes {
		quota := part
		if l.full && l.pace.density > 0 && batch > len(lanes) {
			quota = max(least, int(math.Ceil(l.pace.density*(goal-float64(l.pace.at)))))
		}
		most := lanedb.MaxFetch
		if w.few {
			most = lanedb.FewRows
		}
		l.pace.quota = int32(min(quota, most))
		out[i] = lanedb.Cursor{Lease: l.lease, Position: l.at, Quota: l.pace.quota, Taken: l.taken}
		l.short.cursor(short, &out[i])
	}
	return out
}

// meet returns the number that the lanes with a backlog would reach together with the given number of rows. Lanes
// that are already beyond it wait for the others.
//
// It goes through the lanes from the one that is furthest behind. With the lanes so far, the goal is where the sum of
// density * (goal - at) is the number of rows. A lane beyond that goal needs no rows, and neither do the lanes after
// it, so the search ends there.
func meet(lanes []*lane, rows int) float64 {
	behind := make([]*lane, 0, len(lanes))
	for _, l := range lanes {
		if l.full && l.pace.density > 0 {
			behind = append(behind, l)
		}
	}
	slices.SortFunc(behind, func(a, b *lane) int { return cmp.Compare(a.pace.at, b.pace.at) })
	goal, density, passed := math.Inf(1), 0.0, 0.0
	for _, l := range behind {
		if float64(l.pace.at) >= goal {
			break
		}
		density += l.pace.density
		passed += l.pace.density * float64(l.pace.at)
		goal = (float64(rows) + passed) / density
	}
	return goal
}

// note records how many rows each lane gave, for the next cursors.
func note(lanes []*lane, b *batch) {
	for _, l := range lanes {
		n := b.fetched[l.lease.Lane]
		l.full = n > 0 && n >= int(l.pace.quota) || b.cut[l.lease.Lane]
		l.pace.saw(n, b.first[l.lease.Lane], b.last[l.lease.Lane])
	}
}
