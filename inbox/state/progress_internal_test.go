package state

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/operator"
)

// What processes did between two readings is counted: by processes that were there before, and by those that came. A process that is gone counts no
// more, and one that has the id of none counts from its beginning.
func TestWorkBetweenTwoReadings(t *testing.T) {
	t.Parallel()
	now := time.Now()
	reading := func(after time.Duration, waiting Waiting, by ...Process) []Consumer {
		topics := []Topic{{Topic: "order", Processes: by, Waiting: waiting}, {Topic: "refund", Processes: by, Waiting: waiting}}
		return []Consumer{{Consumer: "billing", Topics: topics, now: now.Add(after)}, {Consumer: "billing@1", now: now.Add(after)}}
	}
	var p progress
	unread := operator.Figures{Waiting: 6, Parked: operator.Unknown, Failing: operator.Unknown, Dead: operator.Unknown}
	require.Equal(t, map[string]operator.Figures{"billing": unread},
		p.since(reading(0, Waiting{Known: true, Messages: 3}, Process{ID: "a", Handled: 100, Failed: 7}, Process{ID: "b", Handled: 50})),
		"nobody knows when it was done")

	got := p.since(reading(15*time.Second, Waiting{}, Process{ID: "a", Handled: 110, Failed: 9}, Process{ID: "c", Handled: 5}))["billing"]
	require.Equal(t, []any{int64(15), int64(2), 15 * time.Second, int64(operator.Unknown)}, []any{got.Went, got.Failed, got.Counted, got.Waiting})

	got = p.since(reading(time.Minute, Waiting{}, Process{ID: "a", Handled: 150}))["billing"]
	require.Equal(t, 45*time.Second, got.Counted)
	got = p.since(reading(3*time.Minute, Waiting{}, Process{ID: "a", Handled: 250}))["billing"]
	require.Zero(t, got.Went, "another process may have read meanwhile")
	require.Zero(t, got.Counted)
}
