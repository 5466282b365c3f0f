package progress

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// A lane with ten times the rows of another one reaches the same places together with it.
func TestLanesKeepStep(t *testing.T) {
	const rows = 1_000_000
	lanes := make([]*Lane, 10)
	queues := map[int16][]int64{}
	for n := range lanes {
		lanes[n] = &Lane{}
		lanes[n].Lease.Lane = int16(n)
	}
	for seq := range int64(rows) {
		n := int16(seq * 7919 % 55) // lane n has n+1 of 55
		for at := range int16(10) {
			if n -= at + 1; n < 0 {
				queues[at] = append(queues[at], seq+1)
				break
			}
		}
	}
	least, most, apart := rows, 0, int64(0)
	for passes := 0; len(queues[9]) > 1000; passes++ {
		b := NewBatch(nil, nil)
		total := 0
		for i, c := range Cursors(lanes, Shortcut{}, 1000, lanedb.MaxFetch) {
			n := int16(i)
			take := min(int(c.Quota), len(queues[n]))
			b.fetched[n], total = take, total+take
			if take > 0 {
				b.first[n], b.last[n] = queues[n][0], queues[n][take-1]
				queues[n] = queues[n][take:]
			}
		}
		NoteFetched(lanes, b)
		if passes < 20 {
			continue
		}
		least, most = min(least, total), max(most, total)
		low, high := lanes[0].pace.At, lanes[0].pace.At
		for _, l := range lanes[1:] {
			low, high = min(low, l.pace.At), max(high, l.pace.At)
		}
		apart = max(apart, high-low)
	}
	require.Less(t, apart, int64(1000), "in numbers of the sequence; a batch has a thousand")
	require.Greater(t, least, 900)
	require.Less(t, most, 1200)
}

func TestALaneThatIsAheadIsNotForgotten(t *testing.T) {
	ahead, behind := &Lane{Full: true, pace: schedule.Pace{At: 1_000_000, Density: 0.5}}, &Lane{Full: true, pace: schedule.Pace{At: 1, Density: 0.5}}
	list := Cursors([]*Lane{ahead, behind}, Shortcut{}, 1000, lanedb.MaxFetch)
	require.EqualValues(t, 62, list[0].Quota)
	require.EqualValues(t, 500, list[1].Quota)
}
