package pace_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pace"
)

// In synctest the clock is exact, and the test does not have to wait for it.
func TestBatchesKeepTheRate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rate  float64
		size  int
		done  []int64
		batch int
		took  time.Duration
	}{
		{0, 500, []int64{500, 500, 500}, 500, 0},
		{100, 500, []int64{100, 100, 50}, 100, 2500 * time.Millisecond},
		{100, 10, []int64{10, 10}, 10, 200 * time.Millisecond},
		{0.5, 500, []int64{1, 1}, 1, 4 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			p := pace.New(test.rate, test.size)
			require.Equal(t, test.batch, p.Batch())
			for _, n := range test.done {
				require.NoError(t, p.Wait(t.Context(), n))
			}
			require.Equal(t, test.took, time.Since(begun), "%v per second", test.rate)
		})
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, pace.New(1, 1).Wait(ctx, 1), context.Canceled)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorContains(t, pace.New(0.1, 1).Wait(ctx, 1), "deadline")
	})
}
