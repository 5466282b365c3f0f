package outbox

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLaneSet(t *testing.T) {
	t.Parallel()
	s := laneOf(3) | laneOf(63) | laneOf(64+5)
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
	s := NewStore(nil, nil)
	require.Equal(t, AllLanes, s.lanesOf(nil), "the layout is not known")
	s.layout.Store(&layout{lanes: 64})
	require.Zero(t, s.lanesOf(nil))
	s.layout.Store(&layout{lanes: 16})
	require.Equal(t, AllLanes, s.lanesOf(nil))
}
