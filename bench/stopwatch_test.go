package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
)

func TestStopwatch(t *testing.T) {
	done := 0
	s := newStopwatch(publisher{}, 1, 2, func() { done++ })
	one := make([]event.Envelope, 1)
	require.NoError(t, s.Publish(t.Context(), one))
	_, err := s.time()
	require.ErrorContains(t, err, "1 of 2 events were not published")
	require.Zero(t, done)
	end := s.end
	require.NoError(t, s.Publish(t.Context(), one))
	require.Equal(t, 1, done)
	require.Equal(t, end, s.end, "the clock has stopped before")
}
