package progress

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
)

func loaded(change int64) *Blocks {
	b := unknownBlocks()
	b.Load(lanedb.LaneBlocks{Change: change, Blocks: []lanedb.Block{
		{Key: "failed", State: stateFailed}, {Key: "dead", State: stateDead, Stalled: true},
		{Key: "s1", State: stateFailed, Stalled: true}, {Key: "s2", State: stateFailed, Stalled: true},
	}})
	return &b
}

// A held row goes on while its key is blocked, but not behind a dead letter, and not if nothing blocks the key.
func TestHeldRowIsSentWhileItsKeyIsBlocked(t *testing.T) {
	b := loaded(3)
	require.True(t, b.MaySend("failed"))
	require.False(t, b.MaySend("dead"))
	require.False(t, b.MaySend("free"))
	b.Kill("failed")
	require.False(t, b.MaySend("failed"))
	require.True(t, b.has("failed"))
	b.Lift("failed")
	require.False(t, b.has("failed"))
}

// The same blocks are doubted once. After an operator has changed the lane, they are other blocks.
func TestBlocksAreDoubtedOnce(t *testing.T) {
	b := loaded(3)
	require.True(t, b.Doubt())
	require.False(t, b.AreKnown())
	require.False(t, b.Doubt(), "they are unknown already")
	b.Load(lanedb.LaneBlocks{Change: 3})
	require.False(t, b.Doubt(), "nobody has acted")
	require.True(t, b.AreKnown())
	b.Load(lanedb.LaneBlocks{Change: 4})
	require.True(t, b.Doubt())
}

// Each stalled key is released once. A key behind a dead letter is not stalled: it waits for an operator.
func TestStalledKeysAreTakenOnce(t *testing.T) {
	b := loaded(0)
	require.Equal(t, []string{"s1"}, b.TakeStalled(1))
	require.Equal(t, []string{"s2"}, b.TakeStalled(5))
	require.Empty(t, b.TakeStalled(5))
}
