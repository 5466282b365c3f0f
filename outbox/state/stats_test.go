package state_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgplan"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

func (f *fixture) stats() outboxstate.Stats {
	f.T.Helper()
	st, err := f.State().Stats(f.T.Context())
	require.NoError(f.T, err)
	return st
}

// aged adds an event that was recorded so long ago.
func (f *fixture) aged(age time.Duration, key, name string, opts ...event.AddOption) {
	f.T.Helper()
	f.Record(key, name, opts...)
	f.Exec("UPDATE outbox SET created_at = clock_timestamp() - ?::interval WHERE event_type = ?", age.String(), name)
}

// hold fetches all rows and records the given verdicts, by type. A type without a verdict is published.
func (f *fixture) hold(verdicts map[string]lanedb.Verdict) {
	f.T.Helper()
	rows := f.Fetch()
	require.NotEmpty(f.T, rows)
	for i := range rows {
		r := &rows[i]
		lease := f.Leases[r.Lane]
		v := verdicts[r.Type]
		switch {
		case v == 0:
			_, err := lanedb.Of(f.Handle()).Moves.Settle(f.T.Context(), []lanedb.Lease{lease}, []outboxdb.RowID{{Lane: r.Lane, Seq: r.Sequence}})
			require.NoError(f.T, err)
		case v == lanedb.Delayed && r.Key == "":
			_, _, err := lanedb.Of(f.Handle()).Moves.Delay(f.T.Context(), []lanedb.Lease{lease}, []outboxdb.RowID{{Lane: r.Lane, Seq: r.Sequence}})
			require.NoError(f.T, err)
		default:
			outcomes := []lanedb.Outcome{{Seq: r.Sequence, Verdict: v, Wait: time.Hour, Error: "no"}}
			require.NoError(f.T, lanedb.Of(f.Handle()).Moves.Hold(f.T.Context(), lease, outcomes))
		}
	}
}

// The age is that of the oldest event that should have left, wherever it waits.
func TestOldestAge(t *testing.T) {
	t.Parallel()
	later := func() event.AddOption { return event.WithNotBefore(time.Now().Add(time.Hour)) }
	for name, c := range map[string]struct {
		make func(f *fixture)
		want time.Duration
	}{
		"nothing": {func(*fixture) {}, 0},
		"sent": {func(f *fixture) {
			f.aged(time.Hour, "a", "a1")
			f.hold(nil)
		}, 0},
		"new": {func(f *fixture) {
			f.aged(2*time.Hour, "a", "a1")
			f.aged(time.Hour, "b", "b1")
		}, 2 * time.Hour},
		"refused": {func(f *fixture) {
			f.aged(2*time.Hour, "a", "a1")
			f.hold(map[string]lanedb.Verdict{"a1": lanedb.Refused})
		}, 2 * time.Hour},
		"behind a dead letter": {func(f *fixture) {
			f.aged(96*time.Hour, "a", "a1")
			f.aged(72*time.Hour, "a", "a2")
			f.aged(time.Minute, "b", "b1")
			f.hold(map[string]lanedb.Verdict{"a1": lanedb.Dead, "a2": lanedb.Follower})
		}, 72 * time.Hour},
		"a dead letter alone": {func(f *fixture) {
			f.aged(96*time.Hour, "a", "a1")
			f.hold(map[string]lanedb.Verdict{"a1": lanedb.Dead})
		}, 0},
		"delayed and not moved yet": {func(f *fixture) { f.aged(time.Hour, "a", "a1", later()) }, 0},
		"delayed": {func(f *fixture) {
			f.aged(time.Hour, "a", "a1", later())
			f.hold(map[string]lanedb.Verdict{"a1": lanedb.Delayed})
		}, 0},
		"behind a delayed one that no projector has moved": {func(f *fixture) {
			f.aged(2*time.Hour, "a", "a1", later())
			f.aged(time.Hour, "a", "a2")
			f.Exec("UPDATE outbox SET lane = 7")
		}, time.Hour},
		"behind a delayed one in its key": {func(f *fixture) {
			f.aged(2*time.Hour, "a", "a1", later(), event.WithOrderingKey("k"))
			f.aged(2*time.Hour, "a", "a2", event.WithOrderingKey("k"))
			f.hold(map[string]lanedb.Verdict{"a1": lanedb.Delayed, "a2": lanedb.Follower})
		}, 0},
		"behind one that was delayed and then refused": {func(f *fixture) {
			f.aged(3*time.Hour, "a", "a1", later(), event.WithOrderingKey("k"))
			f.aged(2*time.Hour, "a", "a2", event.WithOrderingKey("k"))
			f.hold(map[string]lanedb.Verdict{"a1": lanedb.Delayed, "a2": lanedb.Follower})
			f.Exec("UPDATE outbox_held SET retry_count = 1, not_before = clock_timestamp() - interval '1 hour' WHERE event_type = 'a1'")
		}, 2 * time.Hour},
		"younger than what was delayed and is in front of it": {func(f *fixture) {
			f.aged(3*time.Hour, "a", "a1", later())
			f.aged(2*time.Hour, "a", "a2")
			f.Exec("UPDATE outbox SET lane = 7")
			f.Exec("UPDATE outbox SET not_before = clock_timestamp() - interval '1 minute' WHERE event_type = 'a1'")
		}, 2 * time.Hour},
		"delayed, and its time has come": {func(f *fixture) {
			f.aged(9*time.Hour, "a", "a1", later())
			f.hold(map[string]lanedb.Verdict{"a1": lanedb.Delayed})
			f.Exec("UPDATE outbox_held SET not_before = clock_timestamp() - interval '1 hour', retry_after = clock_timestamp() - interval '1 hour'")
		}, time.Hour},
		"delayed, refused, and waits for its next try": {func(f *fixture) {
			f.aged(9*time.Hour, "a", "a1", later())
			f.hold(map[string]lanedb.Verdict{"a1": lanedb.Delayed})
			f.Exec(`UPDATE outbox_held SET not_before = clock_timestamp() - interval '1 hour', retry_count = 1,
				retry_after = clock_timestamp() + interval '1 hour'`)
		}, time.Hour},
		"more delayed ones than are looked at": {func(f *fixture) {
			f.Exec(`INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload, created_at, not_before)
				SELECT gen_random_uuid(), now(), 7, 'a', 'order', 't', 'test', '', now() - interval '1 hour', now() + interval '1 hour'
				FROM generate_series(1, 200)`)
		}, time.Hour},
		"of a paused tenant, wherever it waits": {func(f *fixture) {
			for _, name := range []string{"refused", "behind", "due", "new"} {
				f.aged(9*time.Hour, "a", name, event.WithTenantID("acme"))
				switch name {
				case "behind":
					f.hold(map[string]lanedb.Verdict{"refused": lanedb.Refused, "behind": lanedb.Follower})
				case "due":
					f.hold(map[string]lanedb.Verdict{"due": lanedb.Refused})
					f.Exec("UPDATE outbox_held SET retry_after = clock_timestamp() - interval '8 hours' WHERE event_type = 'due'")
				}
			}
			f.aged(time.Hour, "b", "b1")
			f.Exec("UPDATE outbox SET lane = 7")
			require.NoError(f.T, f.Tenants().Pause(f.T.Context(), "acme", ann))
		}, time.Hour},
		"of a tenant that was resumed": {func(f *fixture) {
			f.aged(9*time.Hour, "a", "refused", event.WithTenantID("acme"))
			f.hold(map[string]lanedb.Verdict{"refused": lanedb.Refused})
			f.aged(9*time.Hour, "a", "new", event.WithTenantID("acme"))
			require.NoError(f.T, f.Tenants().Pause(f.T.Context(), "acme", ann))
			require.NoError(f.T, f.Tenants().Resume(f.T.Context(), "acme", ann))
			f.Exec("UPDATE outbox_tenant SET resumed_at = clock_timestamp() - interval '1 hour' WHERE paused_at IS NOT NULL")
		}, time.Hour},
		"behind many of a paused tenant":                    {func(f *fixture) { f.manyPaused(499) }, time.Hour},
		"behind more of a paused tenant than are looked at": {func(f *fixture) { f.manyPaused(501) }, 9 * time.Hour},
		"behind many of a paused tenant that a relay has passed": {func(f *fixture) {
			f.manyPaused(501)
			f.Exec("UPDATE outbox_lane SET passed_to = (SELECT max(seq) FROM outbox WHERE tenant_id = 'acme')")
		}, time.Hour},
		"of a tenant whose rows a relay had passed before it was resumed": {func(f *fixture) {
			f.aged(9*time.Hour, "a", "new", event.WithTenantID("acme"))
			f.Exec("UPDATE outbox_lane SET passed_to = (SELECT max(seq) FROM outbox)")
		}, 9 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil)
			c.make(f)
			require.InDelta(t, c.want.Seconds(), f.stats().OldestAge.Seconds(), 1200)
		})
	}
}

// manyPaused has an event that is an hour old behind so many of a paused tenant.
func (f *fixture) manyPaused(n int) {
	f.T.Helper()
	f.Exec(`INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload, created_at)
		SELECT gen_random_uuid(), now(), 7, 'acme', 'order', 't', 'test', '', now() - interval '9 hours' FROM generate_series(1, ?) i`, n)
	f.aged(time.Hour, "b", "b1")
	f.Exec("UPDATE outbox SET lane = 7")
	require.NoError(f.T, f.Tenants().Pause(f.T.Context(), "acme", ann))
}

// While a transaction is open the statistics begin behind what its lanes' owner knows to have left, as long as there is an owner.
func TestStatsBehindAnOpenTransaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.aged(9*time.Hour, "a", "left")
	f.Exec("UPDATE outbox SET lane = 7")
	f.Exec("UPDATE outbox_lane SET open_to = (SELECT max(seq) FROM outbox)")
	f.aged(time.Hour, "b", "waits")
	f.Exec("UPDATE outbox SET lane = 7")
	for lease, want := range map[string]struct {
		age time.Duration
		n   int64
	}{"clock_timestamp() + interval '1 hour'": {time.Hour, 1}, "clock_timestamp()": {9 * time.Hour, 2}} {
		f.Exec("UPDATE outbox_lane SET lease_until = " + lease)
		st := f.stats()
		require.InDelta(t, want.age.Seconds(), st.OldestAge.Seconds(), 1200, lease)
		require.Equal(t, want.n, st.New, lease)
	}
}

// Events of paused tenants are counted by themselves.
func TestStatsOfAPausedTenant(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	require.NoError(t, f.Upkeep().EnsurePartitions(t.Context()))
	for _, name := range []string{"dead", "refused", "new"} {
		f.Record(name, name, event.WithTenantID("acme"))
		f.Record(name, "other "+name)
		if name == "refused" {
			f.hold(map[string]lanedb.Verdict{"dead": lanedb.Dead, "refused": lanedb.Refused, "other dead": lanedb.Dead, "other refused": lanedb.Refused})
		}
	}
	require.NoError(t, f.Tenants().Pause(t.Context(), "acme", ann))
	require.Equal(t, outboxstate.Stats{
		New: 1, Held: 1, Failed: 2, MostTries: 1, Paused: 2, TenantsPaused: 1, Dead: 2, Blocked: 4, Lanes: 64, BusyLanes: f.stats().BusyLanes,
		Shares: []outboxstate.Share{{Topic: "order", Tenant: "acme", Paused: 2, Dead: 1}, {Topic: "order", Tenant: "default", New: 1, Held: 1, Dead: 1}},
	}, f.still())
}

func TestStats(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	require.NoError(t, f.Upkeep().EnsurePartitions(t.Context()))
	require.Equal(t, outboxstate.Stats{Lanes: 64}, f.still())

	later := event.WithNotBefore(time.Now().Add(time.Hour))
	f.Record("a", "a1")
	f.Record("a", "a2")
	f.Record("b", "b1")
	f.Exec("UPDATE outbox SET tenant_id = 'acme' WHERE event_type = 'b1'")
	f.Record("c", "c1", later)
	f.hold(map[string]lanedb.Verdict{"a1": lanedb.Dead, "a2": lanedb.Follower, "b1": lanedb.Refused, "c1": lanedb.Delayed})
	f.Exec("UPDATE outbox_held SET retry_count = 7 WHERE event_type = 'b1'")
	f.Record("d", "d1")
	f.Record("e", "e1", later)
	f.Exec("UPDATE outbox_lane SET lease_until = now() WHERE lane > 61")
	require.Equal(t, outboxstate.Stats{
		New: 1, Held: 2, Failed: 1, MostTries: 7, Delayed: 2, Dead: 1, Blocked: 2, Lanes: 64, BusyLanes: 3, FreeLanes: 2,
		Shares: []outboxstate.Share{{Topic: "order", Tenant: "default", New: 1, Held: 1, Dead: 1}, {Topic: "order", Tenant: "acme", Held: 1}},
	}, f.still())
}

// still returns the statistics without the two ages, which change with the time and with other tests.
func (f *fixture) still() outboxstate.Stats {
	f.T.Helper()
	st := f.stats()
	st.OldestAge, st.SnapshotAge = 0, 0
	// The server reports live rows to its statistics up to a second late, so settled rows of the log count as sent or not yet.
	require.LessOrEqual(f.T, st.Sent, int64(f.Count("outbox")))
	st.Sent = 0
	return st
}

// Published rows stay where they are. The statistics leave them out.
func TestStatsSkipWhatIsEmpty(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.Record("a", "a1")
	f.Record("a", "a2")
	f.Record("a", "a3")
	f.Exec(`INSERT INTO outbox_progress (lane, upto, sent, ahead, total)
		SELECT lane, max(seq), min(seq), int8multirange(int8range(max(seq), NULL)), 2 FROM outbox GROUP BY lane`)
	require.EqualValues(t, 1, f.stats().New)
	f.Exec("INSERT INTO outbox_progress (lane, upto, sent, ahead, total) SELECT lane, max(seq), max(seq), '{}', 3 FROM outbox GROUP BY lane")
	require.Zero(t, f.stats().New)
	require.Zero(t, f.stats().BusyLanes)
}

func TestStatsBeyondWhatIsCounted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.Portions(50_000, `INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
		SELECT gen_random_uuid(), now(), i % 64, CASE WHEN i % 5 = 0 THEN 'b' ELSE 'a' END, 'order', 't', 'test', 'x' FROM generate_series(1, ?) i`)
	for _, not := range []string{"NULL", "'2126-01-01'"} {
		f.Portions(50_000, `WITH row AS (INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload, not_before)
			SELECT gen_random_uuid(), now(), i % 64, 'c', 'slow', 't', 'test', 'x', `+not+` FROM generate_series(1, ?) i RETURNING *)
			INSERT INTO outbox_held SELECT *, coalesce(not_before, 'infinity') FROM row`)
		f.Exec("DELETE FROM outbox WHERE topic = 'slow'")
	}
	f.Exec("INSERT INTO outbox_dead SELECT * FROM outbox")
	var st outboxstate.Stats
	await.True(t, func() bool { // a session publishes its counters when it is idle, and ANALYZE corrects them
		f.Exec("ANALYZE outbox, outbox_held, outbox_dead")
		st = f.stats()
		return st.Dead == 50_000
	}, "the counters of the server")
	require.InDelta(t, 50_000, st.New, 500)
	require.InDelta(t, 50_000, st.Held, 5000)
	require.InDelta(t, 50_000, st.Delayed, 5000)
	require.Len(t, st.Shares, 3)
	require.Equal(t, []string{"a", "c", "b"}, []string{st.Shares[0].Tenant, st.Shares[1].Tenant, st.Shares[2].Tenant})
	require.InDelta(t, 40_000, st.Shares[0].New, 500)
	require.InDelta(t, 10_000, st.Shares[2].New, 500)

	require.NoError(t, f.Tenants().Pause(t.Context(), "b", ann))
	st = f.stats()
	require.InDelta(t, 40_000, st.New, 500)
	require.InDelta(t, 10_000, st.Paused, 500)
	require.InDelta(t, 10_000, st.Shares[2].Paused, 500)
}

func TestPartitionsMissing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	require.Zero(t, f.stats().PartitionsMissing, "Up has made them")
	f.Exec("DROP TABLE outbox_" + time.Now().UTC().AddDate(0, 0, 1).Format("20060102"))
	require.Equal(t, 1, f.stats().PartitionsMissing)
	require.NoError(t, f.Upkeep().EnsurePartitions(t.Context()))
	require.Zero(t, f.stats().PartitionsMissing)
}

func TestSnapshotAge(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	tx, err := f.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.Exec("INSERT INTO oncebox_audit (part, actor, action, tenant_id) VALUES ('outbox', 'a', 'b', 'c')")
	require.NoError(t, err)
	await.True(t, func() bool { return f.stats().SnapshotAge > 100*time.Millisecond }, "the open transaction to have an age")
}

// The statistics read a bounded number of rows of each lane, in the order of an index, whatever is in the tables.
func TestPlansOfStats(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	tables := regexp.MustCompile(`^outbox(_held)?$`)
	const rows = 100_000
	f.Portions(rows, `INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
		SELECT gen_random_uuid(), now(), 3, 'a', 'order', 't', 'test', 'x' FROM generate_series(1, ?) i`)
	f.Portions(rows, `WITH row AS (INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, ordering_key, event_type, source, payload, not_before)
		SELECT gen_random_uuid(), now(), 3, 'c', 'slow', CASE WHEN i % 2 = 0 THEN 'key' END, 't', 'test', 'x',
			CASE WHEN i % 2 = 1 THEN timestamptz '2126-01-01' END FROM generate_series(1, ?) i RETURNING *)
		INSERT INTO outbox_held SELECT *, coalesce(not_before, 'infinity') FROM row`)
	f.Exec("DELETE FROM outbox WHERE topic = 'slow'")
	f.Exec("VACUUM ANALYZE outbox_held") // its index-only scans need the visibility map
	f.Exec("ANALYZE outbox, outbox_lane")
	for name, statement := range map[string]string{
		"numbers": fmt.Sprintf(outboxdb.Statistics, 200), "numbers beside a pause": fmt.Sprintf(outboxdb.Statistics, 500),
		"all": outboxdb.CountAll, "front": outboxdb.CountFront,
	} {
		plan, err := pgplan.Generic(t.Context(), f.DB.DB.DB, f.Text(statement))
		require.NoError(t, err)
		require.Empty(t, plan.Unbounded(tables), "%s\n%s", name, plan.Text)
		if !strings.HasPrefix(name, "numbers") { // for these it is turned off
			require.NotContains(t, plan.Text, "JIT", name)
		}
		require.Contains(t, plan.Text, "_lane_seq_idx on outbox_20", name)
		require.Contains(t, plan.Text, "outbox_held_waiting on outbox_held h", name)
		if strings.HasPrefix(name, "numbers") { // up to 10,001 rows of each kind, from all over the table
			require.Contains(t, plan.Text, "Index Only Scan using outbox_held_timed on outbox_held", plan.Text)
			require.Contains(t, plan.Text, "Index Only Scan Backward using outbox_held_refused on outbox_held", plan.Text)
		}
	}
}

func TestStatsOfTwoOutboxes(t *testing.T) {
	t.Parallel()
	a := outboxstate.Stats{
		OldestAge: time.Minute, New: 1, Held: 2, Failed: 3, MostTries: 4, Paused: 5, TenantsPaused: 1,
		Delayed: 5, Dead: 6, Sent: 7, Blocked: 8, Lanes: 64, BusyLanes: 9, FreeLanes: 10,
		PartitionsMissing: 1, SnapshotAge: time.Second,
		Shares: []outboxstate.Share{{Topic: "order", Tenant: "a", New: 1, Held: 1}, {Topic: "order", Tenant: "b", Held: 1, Dead: 6}},
	}
	b := a
	b.OldestAge, b.MostTries, b.SnapshotAge = time.Second, 9, time.Hour
	b.Shares = []outboxstate.Share{{Topic: "stock", Tenant: "a", New: 20}, {Topic: "order", Tenant: "b", New: 1}}
	require.Equal(t, outboxstate.Stats{
		OldestAge: time.Minute, New: 2, Held: 4, Failed: 6, MostTries: 9, Paused: 10, TenantsPaused: 2,
		Delayed: 10, Dead: 12, Sent: 14, Blocked: 16, Lanes: 128, BusyLanes: 18,
		FreeLanes: 20, PartitionsMissing: 2, SnapshotAge: time.Hour,
		Shares: []outboxstate.Share{
			{Topic: "stock", Tenant: "a", New: 20}, {Topic: "order", Tenant: "b", New: 1, Held: 1, Dead: 6}, {Topic: "order", Tenant: "a", New: 1, Held: 1},
		},
	}, a.Plus(&b))
	require.EqualValues(t, 1, a.Shares[0].New, "neither is changed")
}
