package idempotency

import (
	"encoding/binary"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Keys that are the first of their page at the same time are all remembered.
func TestRecentIsMarkedByMany(t *testing.T) {
	keys := make([]Key, 8)
	for i := range keys {
		binary.BigEndian.PutUint64(keys[i].hash[:], uint64(i)<<8|7)
	}
	for range 2000 {
		var r recent
		require.False(t, r.has(keys[0]))
		var all sync.WaitGroup
		for _, key := range keys[1:] {
			all.Go(func() { r.mark(key) })
		}
		all.Wait()
		require.False(t, r.has(keys[0]))
		for _, key := range keys[1:] {
			require.True(t, r.has(key))
		}
	}
}
