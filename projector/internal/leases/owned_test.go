package leases

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/projector/internal/progress"
)

// Lanes whose leases are about to end are passed over, and a worker that was woken for their rows meanwhile sleeps again. When the
// renewal comes after all, they must not wait for the next poll.
func TestARenewalThatCameLateWakesTheWorker(t *testing.T) {
	for name, c := range map[string]struct {
		left  time.Duration
		wakes int
	}{"late": {6 * time.Second, 1}, "in time": {time.Minute, 0}} {
		t.Run(name, func(t *testing.T) {
			o := NewOwned(6 * time.Second)
			o.Add(lanedb.Lease{Lane: 7}, time.Now().Add(c.left))
			until := time.Now().Add(time.Hour)
			require.Equal(t, 1, o.renewed(until, map[int16]int64{7: 0}))
			require.Len(t, o.Wake, c.wakes)
			require.Equal(t, until, o.lanes[7].validUntil)
		})
	}
}

// A batch that begins now must be settled before the lease ends, or its rows would be published by two projectors.
func TestNoBatchOutlastsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewOwned(7 * time.Second)
		o.Add(lanedb.Lease{Lane: 1}, time.Now().Add(7*time.Second+time.Millisecond))
		l := o.lanes[1].lane
		l.Blocks.Load(lanedb.LaneBlocks{})
		lanes, rows := map[int16]*progress.Lane{1: l}, []*outboxdb.Row{{Lane: 1}}
		require.Equal(t, []*progress.Lane{l}, o.Ready())
		require.True(t, o.MayPublish(lanes, rows))
		time.Sleep(time.Millisecond)
		require.Empty(t, o.Ready())
		require.Empty(t, o.StillReady([]*progress.Lane{l}))
		require.False(t, o.MayPublish(lanes, rows))
	})
}

// A pass may hold a lane that was lost and claimed again meanwhile. Its rows were read under the old lease.
func TestALaneThatWasClaimedAgainIsAnother(t *testing.T) {
	o := NewOwned(2 * time.Second)
	until := time.Now().Add(time.Hour)
	o.Add(lanedb.Lease{Lane: 1, Epoch: 1}, until)
	old := o.lanes[1].lane
	old.Blocks.Load(lanedb.LaneBlocks{})
	lanes, rows := map[int16]*progress.Lane{1: old}, []*outboxdb.Row{{Lane: 1}}
	require.True(t, o.MayPublish(lanes, rows))
	require.True(t, o.Keeps(lanes))

	o.renewed(until, nil)
	require.False(t, o.MayPublish(lanes, rows), "it is lost")
	o.Add(lanedb.Lease{Lane: 1, Epoch: 2}, until)
	require.False(t, o.MayPublish(lanes, rows))
	require.Empty(t, o.StillReady([]*progress.Lane{old}))
	require.False(t, o.Keeps(lanes))
	require.Len(t, o.Ready(), 1)
	require.NotSame(t, old, o.Ready()[0])
}
