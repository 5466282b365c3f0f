package schedule

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Held rows are looked at when one is due, and now and then in any case. Rows that stay are not looked at again at once.
func TestDueRowsAreLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 100 * time.Millisecond
		var d DueTime
		require.True(t, d.IsToBeChecked(every), "nothing is known yet")
		d.Checked(time.Now())
		require.False(t, d.IsToBeChecked(every))

		d.Known, d.Next = true, time.Now().Add(50*time.Millisecond)
		time.Sleep(49 * time.Millisecond)
		require.False(t, d.IsToBeChecked(every))
		time.Sleep(time.Millisecond)
		require.True(t, d.IsToBeChecked(every), "a row is due")
		d.Checked(time.Now())
		require.False(t, d.IsToBeChecked(every), "it stays")
		require.False(t, d.Known)
		time.Sleep(every)
		require.True(t, d.IsToBeChecked(every))
	})
}
