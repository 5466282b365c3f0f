package pulsar

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReconnectNeverPausesForLong(t *testing.T) {
	r := newReconnect()
	for range 100 {
		d := r.Next()
		require.Positive(t, d)
		require.LessOrEqual(t, d, longestReconnect)
	}
	require.True(t, r.IsMaxBackoffReached())
	r.Reset()
	require.False(t, r.IsMaxBackoffReached())
}
