package ops_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/ops"
)

func TestTimesAreReadInAllTheirForms(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "2026-11-01": time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), "2026-11-01T15:04": time.Date(2026, 11, 1, 15, 4, 0, 0, time.UTC),
		"2026-11-01T15:04:05": time.Date(2026, 11, 1, 15, 4, 5, 0, time.UTC), "2026-11-01T15:04:05Z": time.Date(2026, 11, 1, 15, 4, 5, 0, time.UTC),
		"2026-11-01T15:04:05.5+01:00": time.Date(2026, 11, 1, 14, 4, 5, 500_000_000, time.UTC),
	} {
		for _, read := range []func(string, time.Time) (time.Time, error){ops.TimeAgo, ops.TimeAhead} {
			got, err := read(text, now)
			require.NoError(t, err, text)
			require.True(t, got.Equal(want), "%s: %s", text, got)
		}
	}
	ago, err := ops.TimeAgo("90m", now)
	require.NoError(t, err)
	ahead, err := ops.TimeAhead("90m", now)
	require.NoError(t, err)
	require.Equal(t, []time.Time{now.Add(-90 * time.Minute), now.Add(90 * time.Minute)}, []time.Time{ago, ahead})
	_, err = ops.TimeAgo("yesterday", now)
	require.ErrorContains(t, err, `"yesterday" is not a time: give 2006-01-02,`)
}
