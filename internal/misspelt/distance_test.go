package misspelt

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"order", "order", 0}, {"", "order", 5}, {"order", "", 5}, {"order", "orders", 1}, {"order", "oder", 1}, {"order", "arder", 1},
		{"order", "oredr", 2}, {"kitten", "sitting", 3}, {"order", "ORDER", 5},
	} {
		require.Equal(t, c.want, Distance(c.a, c.b), "%s and %s", c.a, c.b)
	}
}
