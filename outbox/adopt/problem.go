package adopt

import (
	"maps"
	"slices"
	"time"
)

// Problem is a row that no event can be made of. It stays in its place, and later rows of its ordering key stay behind it.
type Problem struct {
	// Row is the id of the row, as the mapping reads it. "": it is NULL.
	Row string `json:"row"`
	// At is the ctid of the row, by which it is found if it has no id: SELECT ... WHERE ctid = '(0,1)'.
	At string `json:"at"`
	// Reason is what is wrong.
	Reason string `json:"reason"`

	place, key string // key is "" for a row without an order
	found      int    // number in the order of the table
}

// staying are the rows that a mover leaves where they are, so that it does not read them again with each batch.
type staying struct {
	since   time.Time
	byPlace map[string]Problem
	blocked map[string]bool
	// ended says that the last batch was the last one: nothing is left that can be moved.
	ended bool
}

const (
	// shownProblems is how many rows a summary has.
	shownProblems = 1000
	// mostProblems is how many rows may stay. Each batch leaves them out by name, so with more of them it takes ever longer.
	mostProblems = 10_000
)

func (s *staying) forget() {
	s.since, s.byPlace, s.blocked, s.ended = time.Now(), map[string]Problem{}, map[string]bool{}, false
}

// forgetOld forgets all after a time. Then each of the rows is read again, because it may have been mended.
func (s *staying) forgetOld(after time.Duration) {
	if len(s.byPlace) > 0 && time.Since(s.since) > after {
		s.forget()
	}
}

func (s *staying) add(problems []Problem) {
	for _, p := range problems {
		p.found = len(s.byPlace)
		s.byPlace[p.place] = p
		if p.key != "" {
			s.blocked[p.key] = true
		}
	}
}

func (s *staying) places() []string {
	return append([]string{}, slices.Collect(maps.Keys(s.byPlace))...)
}

func (s *staying) keys() []string { return append([]string{}, slices.Collect(maps.Keys(s.blocked))...) }

// list returns the first problems, in the order in which their rows were read.
func (s *staying) list() []Problem {
	list := slices.SortedFunc(maps.Values(s.byPlace), func(a, b Problem) int { return a.found - b.found })
	return list[:min(len(list), shownProblems)]
}
