package state_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgplan"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

func (f *fixture) lane(number int16) outboxstate.Lane {
	f.T.Helper()
	lanes, err := f.State().Lanes(f.T.Context())
	require.NoError(f.T, err)
	require.Len(f.T, lanes, 64)
	return lanes[number]
}

// A lane shows what waits in it, what is on its way, and its owner.
func TestLanesTellWhatWaits(t *testing.T) {
	f := newFixture(t, nil)
	number := f.fixed("a")
	idle := f.lane(number)
	require.Equal(t, []any{number, int16(0), "me", int64(1), true, int64(0)}, []any{idle.Lane, idle.Group, idle.Owner, idle.Epoch, idle.Leased, idle.Backlog()})
	require.Zero(t, idle.Since)
	require.Zero(t, idle.Age)

	f.Record("a", "a1")
	f.Record("a", "a2")
	f.Exec("UPDATE outbox SET created_at = created_at - interval '1 hour' WHERE event_type = ?", "a1")
	fresh := f.lane(number)
	require.EqualValues(t, 2, fresh.New)
	require.Zero(t, fresh.Claimed)
	require.InDelta(t, time.Hour, fresh.Age, float64(5*time.Minute))

	rows := f.Fetch()
	require.Len(t, rows, 2)
	taken := f.lane(number)
	require.EqualValues(t, 2, taken.Claimed, "they may be on their way")
	require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(t.Context(), f.Leases[number], []lanedb.Outcome{
		{Seq: rows[0].Sequence, Verdict: lanedb.Refused, Error: "no"}, {Seq: rows[1].Sequence, Verdict: lanedb.Follower},
	}))
	held := f.lane(number)
	require.EqualValues(t, 2, held.Held)
	require.InDelta(t, time.Hour, held.Age, float64(5*time.Minute))

	// The lease of an owner that vanished is over; its name stays until another one takes the lane.
	f.Exec("UPDATE outbox_lane SET lease_until = clock_timestamp() - interval '1 second'")
	lost := f.lane(number)
	require.Equal(t, []any{"me", false}, []any{lost.Owner, lost.Leased})
	f.Exec("UPDATE outbox_lane SET owner = NULL, lease_until = '-infinity'")
	free := f.lane(number)
	require.Equal(t, []any{"", false, true, int64(0)}, []any{free.Owner, free.Leased, free.LeaseUntil.IsZero(), free.Claimed})
}

// Rows that were taken out of turn may be on their way too. A lane without an owner has nothing on its way,
// whatever its last owner has left.
func TestLaneTellsWhatWasTakenOutOfTurn(t *testing.T) {
	f := newFixture(t, nil)
	number := f.fixed("a")
	f.Record("a", "a1")
	f.Record("a", "a2")
	f.Exec("INSERT INTO outbox_claim (lane, upto, picked) SELECT lane, 0, array_agg(seq) FROM outbox WHERE event_type = 'a2' GROUP BY lane")
	require.EqualValues(t, 1, f.lane(number).Claimed)
	f.Exec("INSERT INTO outbox_claim (lane, upto) SELECT lane, max(seq) FROM outbox GROUP BY lane")
	f.Exec("UPDATE outbox_lane SET owner = NULL, lease_until = '-infinity'")
	require.Zero(t, f.lane(number).Claimed)
}

// fixed is the lane of an aggregate's events.
func (f *fixture) fixed(key string) int16 {
	f.T.Helper()
	f.Record(key, "probe")
	var lane int16
	require.NoError(f.T, f.DB.QueryRowContext(f.T.Context(), "SELECT lane FROM outbox").Scan(&lane))
	f.Exec("DELETE FROM outbox")
	return lane
}

// An event that waits for its time makes its lane no older.
func TestDelayedEventIsNotOld(t *testing.T) {
	f := newFixture(t, nil)
	f.Record("a", "later", event.WithNotBefore(time.Now().Add(24*time.Hour)))
	f.Exec("UPDATE outbox SET created_at = created_at - interval '1 hour'")
	lanes, err := f.State().Lanes(t.Context())
	require.NoError(t, err)
	for _, l := range lanes {
		require.Zero(t, l.Since, l.Lane)
	}
}

// Nor does one of a paused tenant, wherever it waits.
func TestPausedEventIsNotOld(t *testing.T) {
	f := newFixture(t, nil)
	f.Record("a", "refused", event.WithTenantID("acme"))
	f.hold(map[string]lanedb.Verdict{"refused": lanedb.Refused})
	f.Record("b", "new", event.WithTenantID("acme"))
	require.NoError(t, f.Tenants().Pause(t.Context(), "acme", ann))
	lanes, err := f.State().Lanes(t.Context())
	require.NoError(t, err)
	waiting := int64(0)
	for _, l := range lanes {
		require.Zero(t, l.Since, l.Lane)
		waiting += l.Backlog()
	}
	require.EqualValues(t, 2, waiting)
}

func TestPlanOfLanes(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.Portions(50_000, `INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
		SELECT gen_random_uuid(), now(), 3, 'a', 'order', 't', 'test', 'x' FROM generate_series(1, ?) i`)
	f.Portions(50_000, `WITH row AS (INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, ordering_key, event_type, source, payload)
		SELECT gen_random_uuid(), now(), 3, 'c', 'slow', 'key', 't', 'test', 'x' FROM generate_series(1, ?) i RETURNING *)
		INSERT INTO outbox_held SELECT *, 'infinity' FROM row`)
	f.Exec("DELETE FROM outbox WHERE topic = 'slow'")
	f.Exec("ANALYZE outbox, outbox_held")
	plan, err := pgplan.Generic(t.Context(), f.DB.DB.DB, f.Text(outboxdb.LaneStates))
	require.NoError(t, err)
	require.Empty(t, plan.Unbounded(regexp.MustCompile(`^outbox(_held|_default|_20\d+)?$`)), plan.Text)
	require.Contains(t, plan.Text, "_lane_seq_idx on outbox_20")
	require.Contains(t, plan.Text, "outbox_held_waiting on outbox_held h")
	lane := f.lane(3)
	require.Equal(t, []int64{outboxstate.LaneCounted, outboxstate.LaneCounted}, []int64{lane.New, lane.Held}, "it counts no further")
}

// A projector is listed while it is alive, and for a day after it vanished.
func TestProjectorsAreListed(t *testing.T) {
	f := newFixture(t, nil)
	for _, owner := range []string{"gone", "long gone", "me"} {
		_, err := lanedb.Of(f.Handle()).Leases.Heartbeat(t.Context(), owner, 0, time.Minute)
		require.NoError(t, err)
	}
	f.Exec("UPDATE outbox_projector SET seen_until = clock_timestamp() - interval '1 hour' WHERE owner = 'gone'")
	f.Exec("UPDATE outbox_projector SET seen_until = clock_timestamp() - interval '25 hours' WHERE owner = 'long gone'")
	list, err := f.State().Projectors(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, []any{"gone", false, 0}, []any{list[0].Owner, list[0].Alive, list[0].Lanes})
	require.Equal(t, []any{"me", true, 64}, []any{list[1].Owner, list[1].Alive, list[1].Lanes})
}
