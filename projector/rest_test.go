package projector

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/projector/internal/leases"
)

// The pauses of a worker without notifications grow up to SleepIdle. Each commit that is reported to it makes them short again.
func TestPausesOfAnIdleWorkerGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := (&Config{}).WithDefaults()
		w := &worker{cfg: &cfg, owned: leases.NewOwned(time.Second)}
		rests := func() time.Duration {
			began := time.Now()
			w.rest(t.Context(), w.longerPause())
			require.Equal(t, outboxdb.AllLanes, w.owned.Heard, "after a pause all lanes are looked at")
			return time.Since(began)
		}
		for range 2 {
			for _, want := range []int{100, 200, 400, 800, 1600, 2000, 2000} {
				require.Equal(t, time.Duration(want)*time.Millisecond, rests())
			}
			w.owned.Nudge()
			require.Zero(t, rests(), "it was heard of before the pause")
		}
	})
}
