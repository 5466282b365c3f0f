package main

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestQuantile(t *testing.T) {
	sorted := sample{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	require.InDelta(t, 5, quantile(sorted, 0.5), 0)
	require.InDelta(t, 10, quantile(sorted, 0.95), 0)
	require.InDelta(t, 1, quantile(sorted, 0), 0)
	require.True(t, math.IsNaN(quantile(nil, 0.5)))
}

func TestDelaysLeaveTheWarmUpOut(t *testing.T) {
	ms := int64(time.Millisecond)
	r := &record{
		Committed: []stamp{{"a", 1, 0}, {"b", 1, int64(latencyWarmUp)}, {"a", 2, int64(latencyWarmUp) + 7*ms}},
		Arrived:   []stamp{{"a", 1, 900 * ms}, {"b", 1, int64(latencyWarmUp) + 3*ms}, {"a", 2, int64(latencyWarmUp) + 6*ms}},
	}
	require.Equal(t, sample{0, 3}, r.delays(r.Arrived), "one was quicker than the return of the committing call")
}

func TestARecordThatLacksSomethingIsWrong(t *testing.T) {
	r := &record{}
	for version := int64(1); version <= 2; version++ {
		for i := range latencyAccounts {
			r.note(&r.Arrived, accountID(i), storedVersion+version)
		}
	}
	require.NoError(t, r.verify(2))
	r.Arrived = r.Arrived[:len(r.Arrived)-1]
	require.ErrorContains(t, r.verify(2), "lost=1")
	r.note(&r.Arrived, accountID(0), storedVersion+1)
	require.ErrorContains(t, r.verify(2), "doubled=1")
}
