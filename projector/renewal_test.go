package projector

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
)

// Lanes whose leases are about to end are passed over, and a worker that was woken for their rows meanwhile sleeps again. When the
// renewal comes after all, they must not wait for the next poll.
func TestARenewalThatCameLateWakesTheWorker(t *testing.T) {
	for name, c := range map[string]struct {
		left  time.Duration
		wakes int
	}{"late": {6 * time.Second, 1}, "in time": {time.Minute, 0}} {
		t.Run(name, func(t *testing.T) {
			w := &worker{r: &relay{p: &Projector{cfg: Config{PublishTimeout: 5 * time.Second}}}, wake: make(chan struct{}, 1)}
			l := &lane{lease: lanedb.Lease{Lane: 7}, validUntil: time.Now().Add(c.left)}
			w.lanes = map[int16]*lane{7: l}
			until := time.Now().Add(time.Hour)
			require.Equal(t, 1, w.renewed(until, map[int16]int64{7: 0}))
			require.Len(t, w.wake, c.wakes)
			require.Equal(t, until, l.validUntil)
		})
	}
}
