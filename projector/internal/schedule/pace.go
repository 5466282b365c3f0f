package schedule

import (
	"cmp"
	"math"
	"slices"
)

// Pace is the speed of a lane. A batch is shared out among the lanes of a worker so that lanes with a backlog keep
// step: they reach the same place in the sequence together, however many rows each has on the way there.
//
// With equal parts, lanes with few rows would run far ahead of lanes with many rows. A page of the table holds rows
// of many lanes. It would be read, changed and written once for each lane instead of once for all.
type Pace struct {
	At      int64   // the number of the last row that was fetched
	Density float64 // rows per number of the sequence, an average that follows the latest fetches
	Quota   int32   // the number of rows that the last fetch asked for
}

// Saw takes the result of a fetch: n rows, with numbers from first to last.
func (p *Pace) Saw(n int, first, last int64) {
	if n == 0 {
		p.Density = 0
		return
	}
	from := p.At
	if from <= 0 || from >= last {
		from = first - 1
	}
	now := float64(n) / float64(last-from)
	if p.Density > 0 {
		now = (now + p.Density) / 2
	}
	p.At, p.Density = last, now
}

// Meet returns the number that lanes with a backlog would reach together with the given number of rows. Lanes
// that are already beyond it wait for the others. It sorts the paces.
//
// It goes through the lanes, the furthest behind first. With the lanes so far, the goal is where the sum of
// density * (goal - at) is the number of rows. A lane beyond that goal needs no rows, and neither do the lanes after
// it, so the search ends there.
func Meet(behind []Pace, rows int) float64 {
	slices.SortFunc(behind, func(a, b Pace) int { return cmp.Compare(a.At, b.At) })
	goal, density, passed := math.Inf(1), 0.0, 0.0
	for _, p := range behind {
		if float64(p.At) >= goal {
			break
		}
		density += p.Density
		passed += p.Density * float64(p.At)
		goal = (float64(rows) + passed) / density
	}
	return goal
}
