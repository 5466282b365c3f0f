package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseResident(t *testing.T) {
	require.InDelta(t, 2, parseResident("Name:\tbench\nVmRSS:\t    2048 kB\nThreads:\t9\n"), 0)
	require.True(t, math.IsNaN(parseResident("Name:\tbench\n")))
}
