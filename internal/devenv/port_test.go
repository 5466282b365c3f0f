package devenv

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A port that was given stays reserved, although nothing listens on it yet.
func TestNoPortIsGivenTwice(t *testing.T) {
	given := map[int]bool{}
	for range 300 {
		p, err := takePort()
		require.NoError(t, err)
		defer p.release()
		require.False(t, given[p.number])
		given[p.number] = true
	}
}
