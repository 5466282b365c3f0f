package oncebox_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/walk"
)

// Each stop of "The way of one event" is a function of its file. The test of internal/walk compares their order with a recorded way.
func TestDocsNameStopsThatExist(t *testing.T) {
	way, err := walk.Described(readPage(t, walk.Page))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(way.Write), 10)
	require.GreaterOrEqual(t, len(way.Relay), 10)
	require.GreaterOrEqual(t, len(way.Receive), 10)
	mend, err := way.Missing(os.DirFS("."))
	require.NoError(t, err)
	for _, m := range mend {
		t.Error(m)
	}
}
