package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/outbox"
)

// A row that becomes due after the look for due rows, and before the question when the next one is due, is not forgotten.
func TestNextDueCountsWhatCameSinceTheLastLook(t *testing.T) {
	f := newFixture(t, nil)
	f.add("key", "e")
	row := f.fetch()[0]
	lanes := []int16{row.Lane}
	none := func(since time.Duration) bool {
		t.Helper()
		_, some, err := f.NextDue(t.Context(), lanes, since)
		require.NoError(t, err)
		return !some
	}
	require.True(t, none(time.Hour), "nothing is held")

	lease := f.leases[row.Lane]
	require.NoError(t, f.Hold(t.Context(), lease, []outbox.Outcome{{Seq: row.Sequence, Verdict: outbox.Refused, Wait: time.Hour, Error: "no"}}))
	next, some, err := f.NextDue(t.Context(), lanes, 0)
	require.NoError(t, err)
	require.True(t, some)
	require.InDelta(t, time.Hour, next, float64(10*time.Minute))

	require.NoError(t, f.RetryHeld(t.Context(), lease, 0, row.Sequence, -time.Minute, "no"))
	require.True(t, none(0), "it was due before the last look")
	next, some, err = f.NextDue(t.Context(), lanes, time.Hour)
	require.NoError(t, err)
	require.True(t, some)
	require.LessOrEqual(t, next, time.Duration(0))
}
