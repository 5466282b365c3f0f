package backoff_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/nightly"
)

func TestExponentialDoublesUpToTheLimit(t *testing.T) {
	for attempt, want := range map[int]time.Duration{
		math.MinInt: time.Second, 0: time.Second, 1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second,
		6: 32 * time.Second, 7: time.Minute, 8: time.Minute, math.MaxInt: time.Minute,
	} {
		require.Equal(t, want, backoff.Exponential(attempt, time.Second, time.Minute), "attempt %d", attempt)
	}
	require.Equal(t, 4*time.Nanosecond, backoff.Exponential(2, 2, 5), "half of an odd limit is still doubled")
	require.Equal(t, time.Minute, backoff.Exponential(1, time.Hour, time.Minute), "a base above the limit")
}

func TestExponentialIsMonotoneAndCapped(t *testing.T) {
	nightly.Check(t, 100, 10_000, func(t *rapid.T) {
		base := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "base"))
		limit := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "limit"))
		attempt := rapid.IntRange(1, 1_000_000).Draw(t, "attempt")

		d, next := backoff.Exponential(attempt, base, limit), backoff.Exponential(attempt+1, base, limit)
		require.GreaterOrEqual(t, d, min(base, limit), "never shorter than the first pause")
		require.LessOrEqual(t, d, limit, "never longer than the limit")
		require.GreaterOrEqual(t, next, d, "never shorter than the pause before")
		if next < limit {
			require.Equal(t, 2*d, next, "doubled until the limit is reached")
		}
		if base > 0 {
			require.Equal(t, limit, backoff.Exponential(1_000_000, base, limit), "the limit is reached")
		}
	})
}

func TestExponentialWithoutABaseEnds(t *testing.T) {
	require.Zero(t, backoff.Exponential(math.MaxInt, 0, time.Second), "a pause of nothing stays nothing")
}

func TestJitterStaysBetweenHalfAndWhole(t *testing.T) {
	nightly.Check(t, 100, 10_000, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "d"))
		j := backoff.Jitter(d)
		require.GreaterOrEqual(t, j, d/2)
		require.LessOrEqual(t, j, d)
	})
}

func TestJitterSpreads(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		seen[backoff.Jitter(time.Hour)] = true
	}
	require.Greater(t, len(seen), 90, "a hundred callers that failed together must not come back together")
}

func FuzzExponential(f *testing.F) {
	f.Add(1, int64(time.Second), int64(time.Minute))
	f.Add(math.MaxInt, int64(1), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, attempt int, base, limit int64) {
		if base < 0 || limit < 0 {
			return
		}
		d := backoff.Exponential(attempt, time.Duration(base), time.Duration(limit))
		require.LessOrEqual(t, d, time.Duration(limit))
		require.GreaterOrEqual(t, d, time.Duration(0))
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.NoError(t, backoff.Wait(t.Context(), time.Hour))
		require.Equal(t, time.Hour, time.Since(began))

		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(stop) })
		require.Equal(t, stop, backoff.Wait(ctx, time.Hour))
		require.Equal(t, time.Hour+time.Minute, time.Since(began))
		for range 100 {
			require.Equal(t, stop, backoff.Wait(ctx, 0))
		}
	})
}
