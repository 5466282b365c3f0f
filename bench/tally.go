package main

import (
	"errors"
	"fmt"
)

// tally checks a stream of events: those of each aggregate have to arrive as versions 1, 2, 3, and so on.
// It is not safe for concurrent use.
type tally struct {
	versions int // expected of each aggregate
	// partial means that the stream may stop early: of each aggregate the versions up to the highest one
	// that has arrived are expected.
	partial bool
	// repeats means that events may arrive again, because their publisher was killed before it had recorded them.
	repeats bool
	seen    map[string]*progressOf

	arrived, doubled, disordered, ghosts int
}

// progressOf is what has been seen of one aggregate.
type progressOf struct {
	highest int64
	seen    []bool // by version - 1
}

// newTally expects the versions 1 to versions of each of the ids.
func newTally(ids []string, versions int) *tally {
	t := &tally{versions: versions, seen: make(map[string]*progressOf, len(ids))}
	for _, id := range ids {
		t.seen[id] = &progressOf{seen: make([]bool, versions)}
	}
	return t
}

// add takes the next event of the stream. A repetition is doubled; the first arrival of a version after a higher one
// is disorder.
func (t *tally) add(id string, version int64) {
	p := t.seen[id]
	switch {
	case p == nil || version < 1 || version > int64(t.versions):
		t.ghosts++
	case p.seen[version-1]:
		t.doubled++
	default:
		p.seen[version-1] = true
		t.arrived++
		if version < p.highest {
			t.disordered++
		}
		p.highest = max(p.highest, version)
	}
}

func (t *tally) lost() int {
	if !t.partial {
		return len(t.seen)*t.versions - t.arrived
	}
	lost := -t.arrived
	for _, p := range t.seen {
		lost += int(p.highest)
	}
	return lost
}

// complete reports whether every event has arrived at least once.
func (t *tally) complete() bool { return t.lost() == 0 }

var errWrong = errors.New("WRONG RESULT")

// verdict is nil if everything came once and in order.
func (t *tally) verdict() error {
	if t.lost() == 0 && (t.doubled == 0 || t.repeats) && t.disordered == 0 && t.ghosts == 0 {
		return nil
	}
	return fmt.Errorf("%w: of %d events: lost=%d doubled=%d disordered=%d ghosts=%d",
		errWrong, t.arrived+t.lost(), t.lost(), t.doubled, t.disordered, t.ghosts)
}
