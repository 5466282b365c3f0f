// Package backoff computes pauses between attempts, and waits. It keeps no state: the caller counts the attempts, mostly in a row of the database.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Exponential returns base doubled for every attempt after the first, at most limit, without jitter. Any number of
// attempts is safe: it neither overflows nor takes more steps than limit has bits.
func Exponential(attempt int, base, limit time.Duration) time.Duration {
	d := base
	for i := 1; i < attempt && 0 < d && d < limit; i++ {
		if d > limit/2 {
			return limit
		}
		d *= 2
	}
	return min(d, limit)
}

// Jitter spreads d evenly over [d/2, d], so that attempts that failed together are not repeated together.
func Jitter(d time.Duration) time.Duration {
	if d <= 1 {
		return d
	}
	return d/2 + rand.N(d/2+1) //nolint:gosec // nobody gains anything by guessing a pause
}

// Wait returns nil after d. If ctx is done earlier, or was done before, it returns the cause of ctx at once.
func Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}
