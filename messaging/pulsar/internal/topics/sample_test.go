package topics

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each entry comes once, and those that have come are always spread over all.
func TestStrideVisitsAllEvenly(t *testing.T) {
	for n := int64(1); n < 2000; n++ {
		seen := map[int64]bool{}
		for i := range n {
			seen[i*stride(n)%n] = true
		}
		require.Len(t, seen, int(n))
	}
	for _, n := range []int64{1000, 14230, 100000, 987654321} {
		quarters := [4]int{}
		for i := range int64(fewest) {
			quarters[i*stride(n)%n*4/n]++
		}
		for _, of := range quarters {
			require.GreaterOrEqual(t, of, 1, "%d entries: %v", n, quarters)
			require.LessOrEqual(t, of, 3, "%d entries: %v", n, quarters)
		}
	}
}

// A process that asks for many subscriptions looks at no entries any more when its time is nearly over.
func TestLooksEndBeforeTheDeadline(t *testing.T) {
	s := &sample{admin: &Admin{LookFor: time.Hour}}
	require.WithinDuration(t, time.Now().Add(time.Hour), s.until(t.Context()), time.Minute)
	deadline := time.Now().Add(time.Minute)
	ctx, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	require.Equal(t, time.Second, deadline.Sub(s.until(ctx)))
}
