package projector

import (
	"cmp"
	"math"
	"slices"
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

// meet returns the number that lanes with a backlog would reach together with the given number of rows. It sorts the
// paces. Lanes
// that are already beyond it wait for the others.
//
// It goes through the lanes from the one that is furthest behind. With the lanes so far, the goal is where the sum of
// density * (goal - at) is the number of rows. A lane beyond that goal needs no rows, and neither do the lanes after
// it, so the search ends there.
func meet(behind []pace, rows int) float64 {
	slices.SortFunc(behind, func(a, b pace) int { return cmp.Compare(a.at, b.at) })
	goal, density, passed := math.Inf(1), 0.0, 0.0
	for _, p := range behind {
		if float64(p.at) >= goal {
			break
		}
		density += p.density
		passed += p.density * float64(p.at)
		goal = (float64(rows) + passed) / density
	}
	return goal
}
