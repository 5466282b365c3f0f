package state_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/outbox"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

// located is the only event with the id.
func (f *fixture) located(id string) outboxstate.Located {
	f.T.Helper()
	list, err := f.State().Locate(f.T.Context(), id)
	require.NoError(f.T, err)
	require.Len(f.T, list, 1)
	require.Equal(f.T, id, list[0].ID)
	require.Empty(f.T, list[0].Payload)
	return list[0]
}

// An event is found in each of the tables, with the row that it waits for.
func TestLocateInEachTable(t *testing.T) {
	f := newFixture(t, nil)
	for _, id := range []string{f.Record("other", "o1"), f.Record("a", "a1"), f.Record("a", "a2"), f.Record("b", "b1")} {
		require.Equal(t, outboxstate.StatusNew, f.located(id).Status)
	}
	dead, follower := f.Record("k", "k1"), f.Record("k", "k2")
	require.Len(t, f.Fetch(), 6)
	require.Equal(t, outboxstate.StatusPublishing, f.located(dead).Status)
	f.Kill(map[string]string{"k1": "refused"})
	l := f.located(dead)
	require.Equal(t, []string{outboxstate.StatusDead, "refused", ""}, []string{l.Status, l.Error, l.BehindID})
	require.NotZero(t, l.DiedAt)
	require.Equal(t, dead, f.located(follower).BehindID)
	list, err := f.State().Locate(t.Context(), uuid.Must(uuid.NewV7()).String())
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = f.State().Locate(t.Context(), "order-7")
	require.ErrorContains(t, err, "is not a UUID")
}

// A published event is found on the day of its id and on later days. An event whose id shows no day is found on any day.
func TestLocateReadsTheDaysFromTheIDOn(t *testing.T) {
	f := newFixture(t, nil)
	f.Publish(2)
	own, foreign := uuid.Must(uuid.NewV7()).String(), "2a3b1c4d-0000-4000-8000-000000000001"
	now := time.Now()
	for _, days := range []int{0, 1, -3} {
		f.Exec("UPDATE outbox_sent SET id = ?, sent_at = now() WHERE seq = 1", own)
		f.Exec("UPDATE outbox_sent SET id = ?, sent_at = now() + ? * interval '1 day' WHERE seq = 2", foreign, days)
		require.Equal(t, outboxstate.StatusSent, f.located(foreign).Status)
		require.WithinDuration(t, now.AddDate(0, 0, days), f.located(foreign).SentAt, 2*time.Hour)
		if days < 0 {
			continue // an event is published when it was recorded, or later
		}
		f.Exec("UPDATE outbox_sent SET sent_at = now() + ? * interval '1 day' WHERE seq = 1", days)
		require.WithinDuration(t, now.AddDate(0, 0, days), f.located(own).SentAt, 2*time.Hour)
	}
	kept, err := f.Upkeep().KeptFor(t.Context())
	require.NoError(t, err)
	require.Equal(t, outbox.DefaultRetention, kept)
}
