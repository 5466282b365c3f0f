package outboxdb

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLaneSet(t *testing.T) {
	t.Parallel()
	s := LaneOf(3) | LaneOf(63) | LaneOf(64+5)
	for lane := range int16(64) {
		require.Equal(t, lane == 3 || lane == 5 || lane == 63, s.Has(lane), lane)
		require.Equal(t, s.Has(lane), s.Has(64+lane), "of another group")
	}
	require.Equal(t, s, parseLaneSet(s.String()))
	for _, text := range []string{"", "lanes", "-1", "1ffffffffffffffff"} {
		require.Equal(t, AllLanes, parseLaneSet(text), text)
	}
}

// Only lanes that are 64 apart from group to group can be named without knowing the group.
func TestLanesOfAnotherLayout(t *testing.T) {
	t.Parallel()
	s := New(nil, slog.Default(), &Settings{})
	require.Equal(t, AllLanes, s.LanesOf(nil), "the layout is not known")
	s.layout.Store(&Layout{Lanes: 64})
	require.Zero(t, s.LanesOf(nil))
	s.layout.Store(&Layout{Lanes: 16})
	require.Equal(t, AllLanes, s.LanesOf(nil))
}
