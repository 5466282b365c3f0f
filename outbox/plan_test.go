package outbox_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/outbox"
)

// What the relay does with every batch finds its rows by the primary key, whatever the planner believes of the table: a
// plan that was made for an empty one may have to serve a backlog.
func TestPlansAtAnyBacklog(t *testing.T) {
	f := newFixture(t, nil)
	lanes, epochs := make([]string, 16), make([]string, 16)
	for n := range lanes {
		lanes[n], epochs[n] = strconv.Itoa(n), "1"
	}
	array := func(s []string) string { return "{" + strings.Join(s, ",") + "}" }
	each := func(value string) string { return array(slices.Repeat([]string{value}, len(lanes))) }
	backlog := 0
	for _, step := range []struct{ more, quota int }{{0, 500}, {50_000, 31}, {950_000, 500}} {
		backlog += step.more
		t.Run(strconv.Itoa(backlog), func(t *testing.T) {
			if step.more > 0 {
				_, err := f.db.Exec(`INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
					SELECT gen_random_uuid(), now(), i % 64, 'default', 'order', 't', 'test', 'x' FROM generate_series(1, ?) i`, step.more)
				require.NoError(t, err)
				_, err = f.db.Exec("ANALYZE outbox")
				require.NoError(t, err)
			}
			fetch := outbox.FetchMany
			if step.quota <= 32 {
				fetch = outbox.FetchFew
			}
			for name, plan := range map[string]string{
				"fetch":   f.explain(fetch, "me", array(lanes), array(epochs), each("0"), each(strconv.Itoa(step.quota))),
				"settle":  f.explain(outbox.SettleRows, "me", array(lanes), array(epochs), array(lanes), each("0")),
				"scan":    f.explain(outbox.GlanceRows, array(lanes), each("0"), "{elsewhere}", "{}"),
				"tenants": f.explain(outbox.GlanceTenants, array(lanes), each("0"), "{}"),
				"pick":    f.explain(outbox.PickRows, "me", array(lanes), array(epochs), array(lanes), each("0")),
			} {
				if backlog == 50_000 && (name == "scan" || name == "tenants") {
					continue // 781 rows a lane: it reads nearly all of them, in whatever way
				}
				require.Contains(t, plan, "Index Scan using outbox_pkey", name)
				require.NotContains(t, plan, "Bitmap Heap Scan on outbox o", name)
				require.NotContains(t, plan, "JIT", name)
			}
		})
	}
}

// One key holds a hundred thousand rows, and nobody has analysed the table: what concerns a row, a key or the next minute
// must not read all of them.
func TestPlansOfALongQueue(t *testing.T) {
	f := newFixture(t, nil)
	_, err := f.db.Exec("ALTER TABLE outbox_held SET (autovacuum_enabled = off)")
	require.NoError(t, err)
	for _, state := range []string{"empty", "unknown", "analysed"} {
		t.Run(state, func(t *testing.T) {
			switch state {
			case "unknown":
				_, err := f.db.Exec(`WITH row AS (INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, ordering_key, event_type, source, payload)
					SELECT gen_random_uuid(), now(), 3, 'a', 'order', 'key', 't', 'test', 'x' FROM generate_series(1, 100000) RETURNING *)
					INSERT INTO outbox_held SELECT *, 'infinity' FROM row`)
				require.NoError(t, err)
			case "analysed":
				_, err := f.db.Exec("ANALYZE outbox_held")
				require.NoError(t, err)
			}
			const byKey, byTime = "outbox_held_key on outbox_held", "outbox_held_due on outbox_held"
			due := f.explain(outbox.DueRows, "{1,2,3,4}", "{}")
			require.Regexp(t, `outbox_held_due.*\n.*Index Cond: \(\(lane = c.held_lane\) AND \(retry_after <= `, due)
			next := f.explain(outbox.NextDue, "{1,2,3,4}", "1")
			require.Contains(t, next, byTime)
			require.Regexp(t, `Index Cond: \(\(lane = c.lane\) AND \(retry_after > .*\) AND \(retry_after < 'infinity'`, next)
			if state != "empty" { // a scan of the few pages that it expects
				queue := f.explain(outbox.QueueRows, "3", "key")
				require.Contains(t, queue, byKey)
				require.NotContains(t, queue, "Sort Key: x_1.lane")
			}
			for name, plan := range map[string]string{
				"settle":  f.explain(outbox.SettleHeld, "me", "3", "1", "0", "{5,6}", "key", "true"),
				"abandon": f.explain(outbox.AbandonHeld, "me", "3", "1", "0", "5", "no"),
			} {
				require.Regexp(t, `Index Cond: \(\(lane = next.lane\) AND \(seq = next.seq\)\)`, plan, name)
				require.NotContains(t, plan, "Sort Key: h_1.seq", name)
				require.NotContains(t, plan, "Sort Key: x.seq", name)
			}
		})
	}
}

// explain returns the generic plan, the one that a prepared statement ends up with.
func (f *fixture) explain(statement string, args ...string) string {
	f.t.Helper()
	ctx := f.t.Context()
	conn, err := f.db.DB.DB.Conn(ctx)
	require.NoError(f.t, err)
	defer conn.Close()
	for _, s := range []string{"SET plan_cache_mode = force_generic_plan", "PREPARE p AS " + f.Text(statement)} {
		_, err := conn.ExecContext(ctx, s)
		require.NoError(f.t, err)
	}
	rows, err := conn.QueryContext(ctx, "EXPLAIN EXECUTE p ('"+strings.Join(args, "', '")+"')")
	require.NoError(f.t, err)
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var line string
		require.NoError(f.t, rows.Scan(&line))
		plan.WriteString(line + "\n")
	}
	require.NoError(f.t, rows.Err())
	_, err = conn.ExecContext(ctx, "DEALLOCATE p")
	require.NoError(f.t, err)
	return plan.String()
}
