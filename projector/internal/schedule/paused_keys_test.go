package schedule

import (
	"hash/maphash"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// While a topic is paused, a key that has no row of it waits for nothing, however many keys do.
func TestNoOtherKeyWaitsBehindPausedKeys(t *testing.T) {
	hash := hasher()
	var k pausedKeys
	for n := range mostPausedKeys {
		k.pause(hash(n), int64(n+1))
	}
	for n := range mostPausedKeys {
		require.True(t, k.waits(hash(n), mostPausedKeys+1), "what comes later under key %d", n)
		require.False(t, k.waits(hash(n), int64(n+1)), "the first of key %d", n)
		require.False(t, k.waits(hash(mostPausedKeys+n), mostPausedKeys+1), "key %d is not paused", mostPausedKeys+n)
	}
}

// However many keys of a paused topic there are, the memory for them is bounded, and later rows of each of them wait.
func TestPausedKeysAreBounded(t *testing.T) {
	const keys = 5 * mostPausedKeys
	hash := hasher()
	var k pausedKeys
	for n := range keys {
		k.pause(hash(n), int64(n+1))
	}
	require.LessOrEqual(t, len(k.own)+len(k.shared), 2*mostPausedKeys)
	for n := range keys {
		require.True(t, k.waits(hash(n), keys+1), "what comes later under key %d", n)
	}
	require.False(t, k.waits(hash(0), 1), "the first of all waits for nothing")
}

func hasher() func(int) uint64 {
	seed := maphash.MakeSeed()
	return func(n int) uint64 { return maphash.String(seed, strconv.Itoa(n)) }
}
