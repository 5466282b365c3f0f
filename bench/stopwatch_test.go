package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStopwatch(t *testing.T) {
	s := newStopwatch(1, 2)
	begin := time.Now()
	one := func(from, to int) publication {
		return publication{Begin: begin.Add(time.Duration(from)), End: begin.Add(time.Duration(to)), Confirmed: 1}
	}
	s.note(one(5, 10))
	require.NotPanics(t, func() { s.note(one(0, 20)) })
	took, err := s.wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, time.Duration(10), took, "from the first begin to the end of the publication that was clocked")
}

func TestStopwatchOfAProjectorThatEnds(t *testing.T) {
	s := newStopwatch(1, 2)
	s.note(publication{Confirmed: 1})
	r := &relayer{name: "p", ended: make(chan struct{})}
	close(r.ended)
	_, err := s.wait(t.Context(), r)
	require.ErrorIs(t, err, errEnded)
	require.ErrorContains(t, err, "1 of 2 events were not published")
}
