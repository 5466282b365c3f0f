package lanedb_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// The statements of every batch find their rows by the primary key, whatever the planner believes of the table: a plan
// that was made for an empty table may have to serve a backlog.
func TestPlansAtAnyBacklog(t *testing.T) {
	f := newFixture(t, nil)
	backlog := 0
	for _, step := range []struct {
		more  int
		fetch string
	}{{0, statement("fetchMany")}, {50_000, statement("fetchFew")}, {nightly.N(150_000, 950_000), statement("fetchMany")}} {
		backlog += step.more
		t.Run(strconv.Itoa(backlog), func(t *testing.T) {
			if step.more > 0 {
				f.Portions(step.more, `INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
					SELECT gen_random_uuid(), now(), i % 64, 'default', 'order', 't', 'test', 'x' FROM generate_series(1, ?) i`)
				f.Exec("ANALYZE outbox")
			}
			for name, plan := range map[string]string{
				"fetch":   f.Explain(step.fetch),
				"settle":  f.Explain(statement("settleRows")),
				"scan":    f.Explain(statement("lookRows")),
				"tenants": f.Explain(statement("lookTenants")),
				"pick":    f.Explain(statement("pickRows")),
				"overdue": f.Explain(outboxdb.OldestOverdue),
			} {
				if backlog == 50_000 && (name == "scan" || name == "tenants") {
					continue // 781 rows a lane: it reads nearly all of them, in whatever way
				}
				require.Contains(t, plan, "_lane_seq_idx on outbox_20", name)
				require.NotContains(t, plan, "Bitmap Heap Scan on outbox_2", name)
				require.NotContains(t, plan, "JIT", name)
			}
		})
	}
}

// One key holds a hundred thousand rows, and nobody has analysed the table: what concerns a row, a key or the next minute
// must not read all of them.
func TestPlansOfALongQueue(t *testing.T) {
	f := newFixture(t, nil)
	_, err := f.DB.Exec("ALTER TABLE outbox_held SET (autovacuum_enabled = off)")
	require.NoError(t, err)
	for _, state := range []string{"empty", "unknown", "analysed"} {
		t.Run(state, func(t *testing.T) {
			switch state {
			case "unknown":
				_, err := f.DB.Exec(`WITH row AS (INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, ordering_key, event_type, source, payload)
					SELECT gen_random_uuid(), now(), 3, 'a', 'order', 'key', 't', 'test', 'x' FROM generate_series(1, 100000) RETURNING *)
					INSERT INTO outbox_held SELECT *, 'infinity' FROM row`)
				require.NoError(t, err)
			case "analysed":
				_, err := f.DB.Exec("ANALYZE outbox_held")
				require.NoError(t, err)
			}
			const byKey, byTime = "outbox_held_key on outbox_held", "outbox_held_due on outbox_held"
			due := f.Explain(statement("dueRows"))
			require.Regexp(t, `outbox_held_due.*\n.*Index Cond: \(\(lane = c.held_lane\) AND \(retry_after <= `, due)
			next := f.Explain(statement("nextDue"))
			require.Contains(t, next, "outbox_held_timed on outbox_held")
			require.Regexp(t, `Index Cond: \(\(lane = c.lane\) AND \(retry_after > .*\)\)\n`, next+"\n")
			if state != "empty" { // a scan of the few pages that it expects
				queue := f.Explain(statement("queueRows"))
				require.Contains(t, queue, byKey)
				require.NotContains(t, queue, "Sort Key: x_1.lane")
				failing := f.Explain(outboxdb.FailingRows)
				require.Contains(t, failing, byKey)
				require.Contains(t, failing, byTime)
				require.NotContains(t, failing, "Seq Scan on outbox_held")
				require.NotContains(t, failing, "Sort Key: x")
			}
			for name, plan := range map[string]string{
				"settle":  f.Explain(statement("settleHeld")),
				"give up": f.Explain(statement("giveUpHeld")),
				"release": f.Explain(statement("releaseKeys")),
			} {
				require.Regexp(t, `Index Cond: \(\(lane = (next|f_1).lane\) AND \(seq = (next|f_1).seq\)\)`, plan, name)
				require.NotRegexp(t, `Sort Key: \w+\.seq`, plan, name)
			}
		})
	}
}

// A topic in trouble has a million held rows that are due, many of them at the same time. Each look goes on behind those that
// were seen, and reads no more of them than it looks at.
func TestPlansOfAPausedTopic(t *testing.T) {
	f := newFixture(t, nil)
	for _, rows := range []int{50_000, nightly.N(150_000, 950_000)} {
		f.Portions(rows, `WITH row AS (INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
			SELECT gen_random_uuid(), now(), i % 4, 'a', 'down', 't', 'test', 'x' FROM generate_series(1, ?) i RETURNING *)
			INSERT INTO outbox_held SELECT *, '2026-01-01' FROM row`)
		for _, state := range []string{"unknown", "analysed"} {
			if state == "analysed" {
				f.Exec("ANALYZE outbox_held")
			}
			plan := f.Explain(statement("lookDue"))
			require.Regexp(t, `Index Scan using outbox_held_due .*\n.*`+
				`Index Cond: \(ROW\(lane, retry_after, seq\) > ROW\(c.lane, c.after, c.seq\)\)`, plan, state)
			require.NotContains(t, plan, "Sort", state)
			require.NotContains(t, plan, "JIT", state)
			require.Regexp(t, `Index Cond: \(\(lane = a.held_lane\) AND \(seq = a.held_seq\)\)`, f.Explain(statement("pickDue")), state)
		}
	}
}

// The literals in the statements are the constants that their readers count with.
func TestLimitsInStatements(t *testing.T) {
	for statement, limit := range map[string]int{
		statement("fetchMany"): lanedb.MaxFetch, statement("lookRows"): lanedb.ScanWindow, statement("lookTenants"): lanedb.ScanWindow,
		statement("lookDue"): lanedb.ScanWindow, statement("dueRows"): lanedb.MaxDue, statement("lookFar"): lanedb.FarWindow,
	} {
		require.Regexp(t, `LIMIT `+strconv.Itoa(limit)+`\)`, statement)
	}
	require.Contains(t, statement("lookFar"), "LIMIT "+strconv.Itoa(lanedb.FarRows)+") w")
	for _, statement := range []string{statement("lookRows"), statement("lookTenants")} {
		require.Regexp(t, `size = `+strconv.Itoa(lanedb.ScanWindow)+`\b`, statement)
	}
}

// statement returns the statement with this name. The projector serves its lanes by it.
func statement(name string) string { return lanedb.Statements(true)[name] }
