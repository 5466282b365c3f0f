package devenv

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Nobody listens on the first one yet when the second one is looked for.
func TestNoPortIsGivenTwice(t *testing.T) {
	reserved.Lock()
	before := len(reserved.locks)
	reserved.Unlock()
	defer func() {
		reserved.Lock()
		defer reserved.Unlock()
		for _, lock := range reserved.locks[before:] {
			_ = lock.Close()
		}
		reserved.locks = reserved.locks[:before]
	}()
	given := map[int]bool{}
	for range 300 {
		port, err := freePort()
		require.NoError(t, err)
		require.False(t, given[port])
		given[port] = true
	}
}
