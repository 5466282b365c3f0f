package oncebox

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// However often probes come, the database is asked only now and then. There is no database here.
func TestProbesShareAnAnswer(t *testing.T) {
	planted := errors.New("planted")
	w := &writable{asked: time.Now().Add(time.Hour), err: planted}
	for range 3 {
		require.ErrorIs(t, w.check(t.Context(), nil), planted)
	}
	w.asked = time.Now().Add(-2 * writableFor)
	require.Panics(t, func() { _ = w.check(t.Context(), nil) }, "by now it is asked again")
}
