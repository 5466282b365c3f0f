package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	require.InDelta(t, 2.0, sample{3, 1, 2}.median(), 0)
	require.InDelta(t, 2.5, sample{4, 1, 3, 2}.median(), 0)
	require.InDelta(t, 7.0, sample{7}.median(), 0)
	require.True(t, math.IsNaN(sample{}.median()))
}

func TestMedianLeavesTheOrderOfTheRounds(t *testing.T) {
	s := sample{3, 1, 2}
	s.median()
	require.Equal(t, sample{3, 1, 2}, s)
}

func TestRatiosAreTakenRoundByRound(t *testing.T) {
	ours, floor := sample{50, 100, 90}, sample{100, 400, 100}
	require.Equal(t, sample{0.5, 0.25, 0.9}, ours.over(floor))
	// The ratio of the medians would be 0.9.
	require.InDelta(t, 0.5, ours.over(floor).median(), 0)
}

func TestFormat(t *testing.T) {
	require.Equal(t, "0.85 [0.80-0.91]", sample{0.91, 0.80, 0.85}.ratio())
	require.Equal(t, "4120 [3980-4205]", sample{4120.4, 4204.6, 3980}.rate())
	require.Equal(t, "-", sample{}.ratio())
}
