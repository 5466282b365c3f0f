package devenv

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Nobody listens on the first one yet when the second one is looked for.
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
