package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

type arrival struct {
	id      string
	version int64
}

func TestTally(t *testing.T) {
	calm := []arrival{{"a", 1}, {"b", 1}, {"a", 2}, {"b", 2}}
	for name, c := range map[string]struct {
		stream []arrival
		want   string
	}{
		"in order":   {calm, ""},
		"lost":       {calm[:3], "lost=1 doubled=0 disordered=0 ghosts=0"},
		"doubled":    {append(calm[:4:4], arrival{"a", 1}), "lost=0 doubled=1 disordered=0 ghosts=0"},
		"disordered": {[]arrival{{"a", 2}, {"b", 1}, {"a", 1}, {"b", 2}}, "lost=0 doubled=0 disordered=1 ghosts=0"},
		"unknown aggregate": {
			append(calm[:4:4], arrival{"c", 1}),
			"lost=0 doubled=0 disordered=0 ghosts=1",
		},
		"unknown version": {
			append(calm[:4:4], arrival{"a", 3}, arrival{"a", 0}),
			"lost=0 doubled=0 disordered=0 ghosts=2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tally := newTally([]string{"a", "b"}, 2)
			for _, a := range c.stream {
				tally.add(a.id, a.version)
			}
			if c.want == "" {
				require.NoError(t, tally.verdict())
				require.True(t, tally.complete())
				return
			}
			require.ErrorIs(t, tally.verdict(), errWrong)
			require.ErrorContains(t, tally.verdict(), c.want)
		})
	}
}

func TestATallyThatTakesRepetitions(t *testing.T) {
	tally := newTally([]string{"a"}, 3)
	tally.repeats = true
	for _, version := range []int64{1, 2, 1, 2, 3} {
		tally.add("a", version)
	}
	require.NoError(t, tally.verdict())
	require.Equal(t, 2, tally.doubled)
}

func TestAPartialTallyHasNoGaps(t *testing.T) {
	tally := newTally([]string{"a", "b"}, 9)
	tally.partial = true
	for _, a := range []arrival{{"a", 1}, {"a", 2}} {
		tally.add(a.id, a.version)
	}
	require.NoError(t, tally.verdict())
	tally.add("b", 2)
	require.ErrorContains(t, tally.verdict(), "of 4 events: lost=1 doubled=0 disordered=0 ghosts=0")
}
