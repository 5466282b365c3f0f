package projector

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
			o := newOwned(5 * time.Second)
			o.add(lanedb.Lease{Lane: 7}, time.Now().Add(c.left))
			until := time.Now().Add(time.Hour)
			require.Equal(t, 1, o.renewed(until, map[int16]int64{7: 0}))
			require.Len(t, o.wake, c.wakes)
			require.Equal(t, until, o.lanes[7].validUntil)
		})
	}
}

// A batch that begins now must be settled before the lease ends, or its rows would be published by two projectors.
func TestNoBatchOutlastsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwned(6 * time.Second)
		o.add(lanedb.Lease{Lane: 1}, time.Now().Add(7*time.Second+time.Millisecond))
		l := o.lanes[1].lane
		l.Loaded = 0
		lanes, rows := map[int16]*progress.Lane{1: l}, []*outboxdb.Row{{Lane: 1}}
		require.Equal(t, []*progress.Lane{l}, o.ready())
		require.True(t, o.mayPublish(lanes, rows))
		time.Sleep(time.Millisecond)
		require.Empty(t, o.ready())
		require.Empty(t, o.stillReady([]*progress.Lane{l}))
		require.False(t, o.mayPublish(lanes, rows))
	})
}

// A pass may hold a lane that was lost and claimed again meanwhile. Its rows were read under the old lease.
func TestALaneThatWasClaimedAgainIsAnother(t *testing.T) {
	o := newOwned(time.Second)
	until := time.Now().Add(time.Hour)
	o.add(lanedb.Lease{Lane: 1, Epoch: 1}, until)
	old := o.lanes[1].lane
	old.Loaded = 0
	lanes, rows := map[int16]*progress.Lane{1: old}, []*outboxdb.Row{{Lane: 1}}
	require.True(t, o.mayPublish(lanes, rows))
	require.True(t, o.keeps(lanes))

	o.renewed(until, nil)
	require.False(t, o.mayPublish(lanes, rows), "it is lost")
	o.add(lanedb.Lease{Lane: 1, Epoch: 2}, until)
	require.False(t, o.mayPublish(lanes, rows))
	require.Empty(t, o.stillReady([]*progress.Lane{old}))
	require.False(t, o.keeps(lanes))
	require.Len(t, o.ready(), 1)
	require.NotSame(t, old, o.ready()[0])
}
