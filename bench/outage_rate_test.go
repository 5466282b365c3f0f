package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRateMeterFindsTheFirstFastSecond(t *testing.T) {
	start := time.Now()
	at := func(seconds float64, n int) ratePoint {
		return ratePoint{start.Add(time.Duration(seconds * float64(time.Second))), n}
	}
	m := rateMeter{points: []ratePoint{at(-1, 500), at(1, 50), at(2.5, 60), at(3.2, 40), at(3.4, 10)}}
	took, ok := m.back(start, 100)
	require.True(t, ok)
	require.Equal(t, 3200*time.Millisecond, took)
	require.Equal(t, []int{0, 50, 60, 50}, m.seconds(start, 4))
	_, ok = m.back(start, 120)
	require.False(t, ok)
	_, ok = m.back(start.Add(time.Hour), 1)
	require.False(t, ok)
}
