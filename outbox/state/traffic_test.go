package state_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgplan"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

// The server's counters lag behind. In the end they have the number of events, whatever way each event went.
func TestTrafficCountsWhatWentThrough(t *testing.T) {
	f := newFixture(t, nil)
	require.NoError(t, f.Upkeep().EnsurePartitions(t.Context()))
	before, err := f.State().Traffic(t.Context())
	require.NoError(t, err)
	for _, name := range []string{"published", "in its turn", "refused", "dead", "discarded"} {
		f.Record(name, name)
	}
	for _, row := range f.Fetch() {
		lease := f.Leases[row.Lane]
		switch row.Type {
		case "published":
			_, err := lanedb.Of(f.Handle()).Moves.Settle(t.Context(), []lanedb.Lease{lease}, []outboxdb.RowID{{Lane: row.Lane, Seq: row.Sequence}})
			require.NoError(t, err)
		case "in its turn":
			_, err := lanedb.Of(f.Handle()).Log.Record(t.Context(), []lanedb.Placed{{Lease: lease, Position: lanedb.Position{}.Publish([]int64{row.Sequence})}})
			require.NoError(t, err)
		case "refused":
			outcomes := []lanedb.Outcome{{Seq: row.Sequence, Verdict: lanedb.Refused, Error: "no"}}
			require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(t.Context(), lease, outcomes))
		default:
			require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(t.Context(), lease, []lanedb.Outcome{{Seq: row.Sequence, Verdict: lanedb.Dead, Error: "no"}}))
		}
	}
	_, err = f.Dead().DiscardAll(t.Context(), operator.DeadFilter{Type: "discarded"}, ann, nil)
	require.NoError(t, err)
	f.DB.SetMaxIdleConns(0) // a session says what it has done when it ends
	reader := outbox.NewStore(f.DB.Another(t), &outbox.Config{Source: "test", Schema: f.DB.Schema})
	await.True(t, func() bool {
		now, err := reader.State().Traffic(t.Context())
		require.NoError(t, err)
		return now.Recorded-before.Recorded == 5 && now.Left-before.Left == 3
	}, "two were published and one discarded, and two are still there")
}

// The pages that load themselves again look for the last action of an operator, however long the audit is.
func TestPlanOfTheLastMove(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.Exec(`INSERT INTO oncebox_audit (at, part, actor, action, tenant_id)
		SELECT clock_timestamp() - n * interval '1 minute', 'outbox', 'ann', 'expire', '' FROM generate_series(1, 50000) n`)
	f.Exec("ANALYZE oncebox_audit")
	plan, err := pgplan.Generic(t.Context(), f.DB.DB.DB, f.Text(outboxstate.LastMove))
	require.NoError(t, err)
	require.Contains(t, plan.Text, "oncebox_audit_age", plan.Text)
	require.NotContains(t, plan.Text, "Seq Scan", plan.Text)
}

func TestRateNeedsTwoReadings(t *testing.T) {
	t.Parallel()
	now := time.Now()
	first := outboxstate.Traffic{At: now, Recorded: 100, Left: 50}
	recorded, left, ok := outboxstate.Traffic{At: now.Add(10 * time.Second), Recorded: 120, Left: 80}.PerSecond(first)
	require.Equal(t, []any{2.0, 3.0, true}, []any{recorded, left, ok})
	for name, second := range map[string]outboxstate.Traffic{
		"the server counts anew": {At: now.Add(time.Second), Recorded: 5}, "the clock stood still": {At: now, Recorded: 120},
	} {
		_, _, ok := second.PerSecond(first)
		require.False(t, ok, name)
	}
	_, _, ok = first.PerSecond(outboxstate.Traffic{})
	require.False(t, ok)
}
