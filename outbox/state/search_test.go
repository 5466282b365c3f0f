package state_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/outbox/state"
)

func (f *fixture) search(text string, before time.Time, within time.Duration, limit int) state.Matches {
	f.T.Helper()
	found, err := f.State().Search(f.T.Context(), text, before, within, limit)
	require.NoError(f.T, err)
	return found
}

// A search goes back day by day, says how far it has come, and goes on from there.
func TestASearchGoesBackDayByDay(t *testing.T) {
	f := newFixture(t, nil)
	today := time.Now().UTC().Truncate(24 * time.Hour)
	for days := range 3 {
		day := today.AddDate(0, 0, -days)
		f.Exec("SELECT outbox_make_partition(?::date)", day.Format(time.DateOnly))
		f.Exec(`INSERT INTO outbox (lane, id, seq, created_at, occurred_at, tenant_id, topic, aggregate_type, aggregate_id, event_type, source, payload)
			SELECT 0, gen_random_uuid(), 1000 + ?::int, ?::timestamptz, now(), 'acme', 'order', 'order', 'o-' || ?, 'order.placed', 'shop', ''`,
			days, day.Add(time.Minute), days)
	}
	const long = time.Hour
	all := f.search("acme", time.Time{}, long, 0)
	require.Len(t, all.List, 3)
	require.Equal(t, []string{"o-0", "tenant"}, []string{all.List[0].AggregateID, all.List[0].By})
	require.False(t, all.More)
	require.Zero(t, all.Back)

	first := f.search("acme", time.Time{}, long, 1)
	require.True(t, first.More)
	require.Equal(t, "o-0", first.List[0].AggregateID)
	require.Equal(t, today.AddDate(0, 0, -1), first.Back.UTC(), "it has looked for one more")
	rest := f.search("acme", today, long, 0)
	require.Len(t, rest.List, 2)
	require.Equal(t, "o-1", rest.List[0].AggregateID)
	require.Empty(t, f.search("o-0", today, long, 0).List)

	// Without time it comes less far each time, and to the end all the same. The partition of tomorrow is made ahead.
	f.Exec("SELECT outbox_make_partition(?::date)", today.AddDate(0, 0, 1).Format(time.DateOnly))
	var found []string
	for before := (time.Time{}); ; {
		part := f.search("acme", before, 0, 0)
		for _, m := range part.List {
			found = append(found, m.AggregateID)
		}
		if part.Back.IsZero() {
			break
		}
		require.True(t, part.Back.Before(time.Now()), "it has searched something: back to %s", part.Back)
		require.True(t, before.IsZero() || part.Back.Before(before), "no circle: from %s to %s", before, part.Back)
		before = part.Back
	}
	require.Equal(t, []string{"o-0", "o-1", "o-2"}, found)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.State().Search(ended, "acme", time.Time{}, long, 0)
	require.ErrorIs(t, err, context.Canceled)
}

// An event is found in each table.
func TestASearchLooksIntoEachTable(t *testing.T) {
	f := newFixture(t, nil)
	f.Record("sent", "s1")
	f.Settle()
	f.Record("dead", "d1")
	f.Record("dead", "d2")
	f.Kill(map[string]string{"d1": "refused"})
	f.Record("new", "n1")
	for key, statuses := range map[string][]string{
		"sent": {state.StatusSent}, "dead": {state.StatusNew, state.StatusDead}, "new": {state.StatusNew},
	} {
		var got []string
		for _, m := range f.search(key, time.Time{}, time.Hour, 0).List {
			got = append(got, m.Status)
		}
		require.Equal(t, statuses, got, key)
	}
}
