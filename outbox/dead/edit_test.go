package dead_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox/dead"
)

func TestEditedEventIsReplayedWithAllElseAsItWas(t *testing.T) {
	f := newFixture(t, nil)
	id := f.Record("a", "a1", event.WithHeader("k", "v"))
	f.Record("b", "b1")
	before := f.Fetch()
	require.Len(t, before, 2)
	f.Kill(map[string]string{"a1": "no", "b1": "no"})
	edit := operator.By{Actor: "ann", Reason: "the total was wrong"}
	require.ErrorContains(t, f.Dead().ReplayEdited(t.Context(), id, []byte("new"), operator.By{Actor: "ann"}), "By.Reason is empty")
	require.ErrorContains(t, f.Dead().ReplayEdited(t.Context(), id, nil, edit), "the payload is empty")
	require.ErrorContains(t, f.Dead().ReplayEdited(t.Context(), id, make([]byte, 1<<20+1), edit), "Config.MaxPayload is 1048576")
	require.ErrorIs(t, f.Dead().ReplayEdited(t.Context(), "no id", []byte("new"), edit), operator.ErrNotDead)
	require.ErrorIs(t, f.Dead().ReplayEdited(t.Context(), id, []byte("new"), edit, dead.OfTenant("acme")), operator.ErrNotDead)
	require.Equal(t, 2, f.Count("outbox_dead"), "nothing was changed")
	require.NoError(t, f.Dead().ReplayEdited(t.Context(), id, []byte("new"), edit))

	want := before[0]
	if want.ID != id {
		want = before[1]
	}
	rows, err := lanedb.Of(f.Handle()).Held.Queue(t.Context(), want.Lane, want.Key, 0)
	require.NoError(t, err)
	want.Payload = []byte("new")
	require.Equal(t, want, rows[0])
	left, err := f.Dead().List(t.Context(), operator.DeadFilter{}, nil, 0)
	require.NoError(t, err)
	require.Len(t, left, 1)
	whole, err := f.Dead().Show(t.Context(), left[0].ID)
	require.NoError(t, err)
	require.Equal(t, []byte("b1"), whole.Payload, "the other one is as it was")
	entries, err := f.Audit(t.Context(), operator.AuditFilter{EventID: id}, nil, 0)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, []string{"ann", "edit", "the total was wrong"}, []string{entries[0].Actor, string(entries[0].Action), entries[0].Reason})
	require.ErrorIs(t, f.Dead().ReplayEdited(t.Context(), id, []byte("newer"), edit), operator.ErrNotDead, "somebody was faster")
}
