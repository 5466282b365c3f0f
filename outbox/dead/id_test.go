package dead_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/operator"
)

// A producer gave two events one id. Both can be dead at once, whichever way they die, and each is found.
func TestEventsWithOneIDMayBothBeDead(t *testing.T) {
	for name, die := range map[string]func(f *fixture){
		"fresh": func(f *fixture) { f.Kill(map[string]string{"a1": "no", "b1": "no"}) },
		"held": func(f *fixture) {
			for _, r := range f.Fetch() {
				lease := f.Leases[r.Lane]
				outcomes := []lanedb.Outcome{{Seq: r.Sequence, Verdict: lanedb.Refused, Error: "no"}}
				require.NoError(f.T, lanedb.Of(f.Handle()).Moves.Hold(f.T.Context(), lease, outcomes))
				require.NoError(f.T, f.GiveUp(lease, f.Change(r.Lane), r.Sequence, "no"))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			f := newFixture(t, nil)
			id := uuid.NewString()
			f.Record("a", "a1", event.WithID(id))
			f.Record("b", "b1", event.WithID(id), event.WithTenantID("acme"))
			die(f)
			f.Exec("UPDATE outbox_dead SET died_at = now()")
			require.ElementsMatch(t, []string{"a1", "b1"}, f.walk(operator.DeadFilter{ID: id}, 1), "on pages of one")

			_, err := f.Dead().Show(ctx, id)
			require.ErrorIs(t, err, operator.ErrSeveralDead)
			require.ErrorIs(t, f.Dead().Replay(ctx, id, ann), operator.ErrSeveralDead)
			require.ErrorIs(t, f.Dead().Discard(ctx, id, ann), operator.ErrSeveralDead)
			require.Equal(t, 2, f.Count("outbox_dead"))

			n, err := f.Dead().DiscardAll(ctx, operator.DeadFilter{ID: id, TenantID: "acme"}, ann, nil)
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			d, err := f.Dead().Show(ctx, id)
			require.NoError(t, err)
			require.Equal(t, "a1", d.Type)
			require.NoError(t, f.Dead().Replay(ctx, id, ann))
			require.Equal(t, map[string][]string{"default|order|a": {"a1"}}, f.Drain())
		})
	}
}
