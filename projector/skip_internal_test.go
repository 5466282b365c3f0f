package projector

import (
	"hash/maphash"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// However many keys of a paused topic there are, what is remembered of them is bounded, and what follows one of them waits.
func TestPausedKeysAreBounded(t *testing.T) {
	const keys = 5 * mostPausedKeys
	seed := maphash.MakeSeed()
	hash := func(n int) uint64 { return maphash.String(seed, strconv.Itoa(n)) }
	var s skip
	for n := range keys {
		s.pause(hash(n), int64(n+1))
	}
	require.LessOrEqual(t, len(s.keys), mostPausedKeys)
	for n := range keys {
		require.True(t, s.waits(hash(n), keys+1), "what comes later under key %d", n)
	}
	require.False(t, s.waits(hash(0), 1), "the first of all waits for nothing")
}
