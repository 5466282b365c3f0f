package outbox_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
)

// insertHeld stores held rows, given their lane and then what comes from the ordering key on.
const insertHeld = `INSERT INTO outbox_held (seq, id, occurred_at, created_at, aggregate_version, schema_version, lane, retry_count, crashes,
	tenant_id, topic, ordering_key, aggregate_type, aggregate_id, event_type, source, content_type, event_metadata, payload, retry_after)
	SELECT nextval('outbox_seq'), gen_random_uuid(), now(), now(), 0, 1, ?, 0, 0, 't', 'order', `

// reconcile repairs what a dry run before has found, which has changed nothing.
func (f *fixture) reconcile() outbox.Reconciled {
	f.t.Helper()
	would, err := f.ReconcileDryRun(f.t.Context())
	require.NoError(f.t, err)
	found, err := f.Reconcile(f.t.Context())
	require.NoError(f.t, err)
	require.Equal(f.t, found, would)
	return found
}

// refuse holds the head of each key that waits in the lanes for an hour, and the rest of it behind that.
func (f *fixture) refuse() {
	f.t.Helper()
	outcomes, seen := map[int16][]outbox.Outcome{}, map[string]bool{}
	for _, r := range f.fetch() {
		o := outbox.Outcome{Seq: r.Sequence, Verdict: outbox.Follower}
		if !seen[r.Key] || r.Key == "" {
			o = outbox.Outcome{Seq: r.Sequence, Verdict: outbox.Refused, Wait: time.Hour, Error: "no"}
		}
		seen[r.Key] = true
		outcomes[r.Lane] = append(outcomes[r.Lane], o)
	}
	for lane, list := range outcomes {
		require.NoError(f.t, f.Relay().Hold(f.t.Context(), f.leases[lane], list))
	}
}

func (f *fixture) addUnordered(name string, opts ...event.AddOption) {
	f.t.Helper()
	_, err := pgtest.Add(f.t.Context(), f.db.DB, f, "order", []byte(name), append(opts, event.WithType(name))...)
	require.NoError(f.t, err)
}

// Whatever the relay and operators leave behind is left alone.
func TestReconcileFindsNothingWrongInOrdinaryTables(t *testing.T) {
	f := newFixture(t, nil)
	require.NoError(t, f.EnsurePartitions(t.Context()))
	for i := range 3 {
		f.add("refused", fmt.Sprintf("refused %d", i))
	}
	f.addUnordered("unordered")
	f.refuse()
	for _, key := range []string{"dead", "replayed", "discarded", "drained"} {
		f.add(key, key+" head")
		if key != "drained" {
			f.add(key, key+" follower")
		}
	}
	f.kill(map[string]string{"dead head": "no", "replayed head": "no", "discarded head": "no", "drained head": "no"})
	_, err := f.ReplayAll(t.Context(), outbox.DeadFilter{Type: "replayed head"}, ann, nil)
	require.NoError(t, err)
	for _, name := range []string{"discarded head", "drained head"} {
		_, err = f.DiscardAll(t.Context(), outbox.DeadFilter{Type: name}, ann, nil)
		require.NoError(t, err)
	}
	f.add("new", "new 1")
	before := f.statuses()
	require.Equal(t, []string{"discarded follower", "replayed head"}, f.due())
	require.Zero(t, f.reconcile())
	require.Equal(t, before, f.statuses())
	require.Equal(t, []string{"discarded follower", "replayed head"}, f.due())
	require.Zero(t, f.count("outbox_block WHERE ordering_key LIKE '%drained'"), "the owner need not do it any more")
	require.Equal(t, 4, f.count("outbox_block"))
}

// Each way in which rows can be left behind: how it is made, what is reported, and what leaves afterwards.
func TestReconcileRepairs(t *testing.T) {
	key := "default|order|a"
	all := map[string][]string{key: {"a1", "a2", "a3"}}
	f := newFixture(t, nil)
	require.NoError(t, f.EnsurePartitions(t.Context()))
	f.exec("SELECT setval('outbox_seq', 1000)") // room in front
	bystanders := map[string]func(lane int16){
		"beside other keys": func(lane int16) {
			f.bystander(lane, "default|order|A0", 100, false)
			f.bystander(lane, "default|order|A1", 200, true)
			f.bystander(lane, key+"0", 1_000_000, false)
			f.bystander(lane, key+"1", 2_000_000, true)
		},
		"beside its own key in other lanes": func(lane int16) {
			f.bystander(lane+1, key, 100, false)
			f.bystander(lane+2, key, 200, true)
		},
	}
	for name, c := range map[string]struct {
		broken string
		dead   bool // a1 is a dead letter and not refused
		want   outbox.Reconciled
		leaves map[string][]string
	}{
		"a head that is gone": {
			broken: "DELETE FROM outbox_held WHERE event_type = 'a1'",
			want:   outbox.Reconciled{Stuck: 1}, leaves: map[string][]string{key: {"a2", "a3"}},
		},
		"a head that waits for ever": {
			broken: "UPDATE outbox_held SET retry_after = 'infinity'",
			want:   outbox.Reconciled{Stuck: 1}, leaves: all,
		},
		"held rows without a block": {
			broken: "DELETE FROM outbox_block; UPDATE outbox_held SET retry_after = now() WHERE event_type = 'a1'",
			want:   outbox.Reconciled{Blocks: 1}, leaves: all,
		},
		"held rows that wait for ever without a block": {
			broken: "DELETE FROM outbox_block; UPDATE outbox_held SET retry_after = 'infinity'",
			want:   outbox.Reconciled{Blocks: 1, Stuck: 1}, leaves: all,
		},
		"a block with nothing behind it": {
			broken: "DELETE FROM outbox_held",
			want:   outbox.Reconciled{Blocks: 1}, leaves: map[string][]string{},
		},
		"held rows in front of a dead letter, without a block": {
			broken: `DELETE FROM outbox_block; UPDATE outbox_held SET retry_after = now() WHERE event_type = 'a1';
				WITH gone AS (DELETE FROM outbox_held WHERE event_type = 'a3' RETURNING *) INSERT INTO outbox_dead SELECT * FROM gone`,
			want: outbox.Reconciled{Blocks: 1}, leaves: map[string][]string{key: {"a1", "a2"}},
		},
		"a head that waits for ever, to be delivered later": {
			broken: `UPDATE outbox_held SET retry_after = 'infinity';
				UPDATE outbox_held SET not_before = now() + interval '1 hour' WHERE event_type = 'a1'`,
			want: outbox.Reconciled{Stuck: 1}, leaves: map[string][]string{},
		},
		"an unordered row that waits for ever, to be delivered later": {
			broken: `DELETE FROM outbox_block; DELETE FROM outbox_held WHERE event_type <> 'a1';
				UPDATE outbox_held SET ordering_key = NULL, retry_after = 'infinity', not_before = now() + interval '1 hour'`,
			want: outbox.Reconciled{Stuck: 1}, leaves: map[string][]string{},
		},
		"a dead letter that is gone": {
			broken: "DELETE FROM outbox_dead", dead: true,
			want: outbox.Reconciled{Blocks: 1, Stuck: 1}, leaves: map[string][]string{key: {"a2", "a3"}},
		},
		"a dead letter that is gone with all that followed": {
			broken: "DELETE FROM outbox_dead; DELETE FROM outbox_held", dead: true,
			want: outbox.Reconciled{Blocks: 1}, leaves: map[string][]string{},
		},
		"a dead letter without its block": {
			broken: "DELETE FROM outbox_block", dead: true,
			want: outbox.Reconciled{Blocks: 1}, leaves: map[string][]string{},
		},
		"a row that is due behind a dead letter": {
			broken: "UPDATE outbox_held SET retry_after = now() WHERE event_type = 'a2'", dead: true,
			want: outbox.Reconciled{Early: 1}, leaves: map[string][]string{},
		},
		"a follower that is due before its head": {
			broken: `UPDATE outbox_held SET retry_after = now() - interval '1 minute' WHERE event_type <> 'a1';
				UPDATE outbox_held SET retry_after = now() WHERE event_type = 'a1'`,
			want: outbox.Reconciled{Early: 2}, leaves: all,
		},
		"an unordered row that waits for ever": {
			broken: `DELETE FROM outbox_block; DELETE FROM outbox_held WHERE event_type <> 'a1';
				UPDATE outbox_held SET ordering_key = NULL, retry_after = 'infinity'`,
			want: outbox.Reconciled{Stuck: 1}, leaves: map[string][]string{"": {"a1"}},
		},
	} {
		for where, add := range bystanders {
			t.Run(name+" "+where, func(t *testing.T) {
				f.exec("TRUNCATE outbox, outbox_held, outbox_dead, outbox_block")
				for _, event := range []string{"a1", "a2", "a3"} {
					f.add("a", event)
				}
				lane := f.leases[f.fetch()[0].Lane]
				if c.dead {
					f.kill(map[string]string{"a1": "no"})
				} else {
					f.refuse()
				}
				f.exec(c.broken)
				add(lane.Lane)
				before := f.bystanders()
				seen := f.change(lane.Lane)
				require.Equal(t, c.want, f.reconcile())
				require.Equal(t, before, f.bystanders(), "they are none of its business")
				_, err := f.Relay().SettleHeld(t.Context(), lane, seen, key, []int64{})
				require.ErrorIs(t, err, outbox.ErrFenced, "the owner knows blocks of before")
				require.Zero(t, f.reconcile(), "once")
				require.Equal(t, c.leaves, f.drain())
			})
		}
	}
}

// bystander stores a key with nothing wrong about it: a head, refused for an hour or dead, a row behind it, and an unordered one
// that was refused.
func (f *fixture) bystander(lane int16, key string, seq int64, dead bool) {
	f.t.Helper()
	held := strings.Replace(insertHeld, "nextval('outbox_seq')", "?", 1)
	const rest = `, '', '', 'bystander', 's', 'text/plain', '{}', 'x', `
	f.exec(held+"?"+rest+"now() + interval '1 hour'", seq, lane, key)
	f.exec(held+"?"+rest+"'infinity'", seq+1, lane, key)
	f.exec(held+"NULL"+rest+"now() + interval '1 hour'", seq+2, lane)
	f.exec("INSERT INTO outbox_block SELECT ?, ?, ?, CASE WHEN ? THEN 'dead' ELSE 'failed' END", lane, key, seq, dead)
	if dead {
		f.exec("WITH gone AS (DELETE FROM outbox_held WHERE seq = ? RETURNING *) INSERT INTO outbox_dead SELECT * FROM gone", seq)
	}
}

// bystanders returns all that there is of them.
func (f *fixture) bystanders() (all []string) {
	f.t.Helper()
	require.NoError(f.t, f.db.NewRaw(`
		SELECT 'held ' || lane || seq || retry_after FROM outbox_held WHERE event_type = 'bystander'
		UNION ALL SELECT 'dead ' || seq FROM outbox_dead WHERE event_type = 'bystander'
		UNION ALL SELECT 'block ' || b FROM outbox_block b WHERE head_seq < 1000 OR head_seq >= 1000000
		ORDER BY 1`).Scan(f.t.Context(), &all))
	return all
}

// A block that was lost comes back as that of the dead letter in front, which an operator decides about.
func TestReconcileKeepsAKeyBehindItsDeadLetter(t *testing.T) {
	f := newFixture(t, nil)
	head := f.add("a", "a1")
	f.add("a", "a2")
	f.add("a", "a3")
	f.kill(map[string]string{"a1": "no", "a2": "no"})
	f.exec("DELETE FROM outbox_block; UPDATE outbox_held SET retry_after = now()")
	require.EqualValues(t, 1, f.reconcile().Blocks)
	require.Equal(t, 1, f.count("outbox_block WHERE state = 'dead' AND head_seq = (SELECT min(seq) FROM outbox_dead)"))
	require.Empty(t, f.due())
	f.exec("DELETE FROM outbox_dead WHERE event_type = 'a2'")
	require.NoError(t, f.Replay(t.Context(), head, ann))
	require.Equal(t, map[string][]string{"default|order|a": {"a1", "a3"}}, f.drain())
}

func TestReconcileEntersLanes(t *testing.T) {
	f := newFixture(t, nil)
	require.NoError(t, f.EnsurePartitions(t.Context()))
	f.add("a", "a1")
	before := f.leases[f.fetch()[0].Lane]
	f.exec("DELETE FROM outbox_lane WHERE lane IN (?, 5, 6)", before.Lane)
	f.add("b", "b1")
	f.exec("UPDATE outbox SET lane = 130 WHERE event_type = 'b1'")
	f.addUnordered("c1", event.WithNotBefore(time.Now().Add(time.Hour)))
	f.exec("WITH gone AS (DELETE FROM outbox WHERE event_type = 'c1' RETURNING *) INSERT INTO outbox_held SELECT *, not_before FROM gone")
	f.exec("UPDATE outbox_held SET lane = 200")
	require.Equal(t, outbox.Reconciled{Lanes: 5}, f.reconcile())
	require.Equal(t, 64, f.count("outbox_lane WHERE grp = 0 AND lane < 64"))
	require.Equal(t, 1, f.count("outbox_lane WHERE grp = 2 AND lane = 130"))
	require.Equal(t, 1, f.count("outbox_lane WHERE grp = 3 AND lane = 200"))
	leases, err := f.Relay().Claim(t.Context(), "me", 0, 64, time.Minute)
	require.NoError(t, err)
	require.Len(t, leases, 3)
	for _, l := range leases {
		require.Greater(t, l.Epoch, before.Epoch+1_000_000, "what was written under the lost entry is fenced")
	}
}

func TestReconcileEndsLeasesThatAClockMadeLong(t *testing.T) {
	f := newFixture(t, nil)
	require.NoError(t, f.EnsurePartitions(t.Context()))
	f.exec("UPDATE outbox_lane SET lease_until = now() + interval '2 days' WHERE lane < 3")
	_, err := f.Relay().Heartbeat(t.Context(), "gone", 0, 48*time.Hour)
	require.NoError(t, err)
	_, err = f.Relay().Heartbeat(t.Context(), "me", 0, time.Minute)
	require.NoError(t, err)
	require.Equal(t, outbox.Reconciled{Leases: 4}, f.reconcile())
	require.Zero(t, f.count("outbox_lane WHERE lease_until > now() + interval '61 minutes'"))
	require.Equal(t, 61, f.count("outbox_lane WHERE lease_until < now() + interval '45 minutes'"), "the others are as they were")
	who, err := f.Relay().Heartbeat(t.Context(), "me", 0, time.Minute)
	require.NoError(t, err)
	require.Equal(t, 1, who.Alive)
}

func TestReconcileMakesPartitions(t *testing.T) {
	f := newFixture(t, nil)
	require.Zero(t, f.reconcile())
	tomorrow := time.Now().UTC().AddDate(0, 0, 1).Format("20060102")
	for _, table := range []string{"outbox", "outbox_progress", "outbox_sent"} {
		f.exec("DROP TABLE " + table + "_" + tomorrow)
		require.Equal(t, outbox.Reconciled{Partitions: 1}, f.reconcile(), table)
	}
	none := outbox.NewStore(f.db.DB, &outbox.Config{Retention: outbox.NoRetention})
	require.NoError(t, none.SetRetention(t.Context(), outbox.By{Actor: "ann", Reason: "nobody reads them"}))
	f.exec("SELECT 1; DROP TABLE outbox_" + tomorrow)
	found, err := none.Reconcile(t.Context())
	require.NoError(t, err)
	require.Equal(t, outbox.Reconciled{Partitions: 1}, found, "what waits is partitioned too")
}

// More keys, unordered rows and followers than one look takes.
func TestReconcileLooksAtAll(t *testing.T) {
	f := newFixture(t, nil)
	require.NoError(t, f.EnsurePartitions(t.Context()))
	f.exec(insertHeld+`'k' || i, '', '', 'e', 's', 'text/plain', '{}', '', 'infinity' FROM generate_series(1, 2500) i`, 7)
	f.exec(insertHeld+`NULL, '', '', 'e', 's', 'text/plain', '{}', '', 'infinity' FROM generate_series(1, 2500) i`, 7)
	f.exec(insertHeld+`'same', '', '', 'e', 's', 'text/plain', '{}', '', '2020-01-01' FROM generate_series(0, 2500) i`, 8)
	f.exec("INSERT INTO outbox_block SELECT 9, 'b' || i, 0, 'failed' FROM generate_series(1, 2500) i")
	f.exec("INSERT INTO outbox_block SELECT 10, 'b' || i, 0, 'dead' FROM generate_series(1, 2500) i")
	found, err := f.Reconcile(t.Context()) // a dry run counts the first of those that are early
	require.NoError(t, err)
	require.Equal(t, outbox.Reconciled{Blocks: 2501 + 2500 + 2500, Stuck: 5000, Early: 2500}, found)
	require.Zero(t, f.reconcile())
	require.Equal(t, 5001, f.count("outbox_held WHERE retry_after <= now()"))
}

// Neither a backlog nor what waits behind refused heads is read.
func TestReconcileReadsOnlyEdges(t *testing.T) {
	f := newFixture(t, nil)
	f.exec(`INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
		SELECT gen_random_uuid(), now(), i % 64, 'default', 'order', 't', 'test', 'x' FROM generate_series(1, 50000) i`)
	f.exec(insertHeld+`'k' || i % 640, '', '', 'e', 's', 'text/plain', '{}', 'x', CASE WHEN i <= 640 THEN now() ELSE 'infinity' END
		FROM generate_series(1, 20000) i`, 7)
	f.exec("INSERT INTO outbox_block SELECT 7, 'k' || i, 0, 'failed' FROM generate_series(0, 639) i")
	for _, statistics := range []bool{false, true} {
		if statistics {
			f.exec("ANALYZE outbox; ANALYZE outbox_held; ANALYZE outbox_block")
		}
		plans, err := f.ExplainLooks(t.Context(), 7)
		require.NoError(t, err)
		for name, plan := range plans {
			require.NotRegexp(t, `Seq Scan on outbox(_held)?\s`, plan, name)
		}
		require.Regexp(t, `Index Cond: .*lane > .*lane < `, plans["stray"])
		require.Contains(t, plans["keys"], "using outbox_held_key")
		require.Regexp(t, `using outbox_held_key on outbox_held .*\n.*ordering_key IS NULL`, plans["unordered"])
		require.Regexp(t, `Index Cond: .*retry_after <= \$`, plans["due"])
	}
}

// What the look took for wrong is looked at again when the lane is locked.
func TestReconcileTouchesNothingThatChangedMeanwhile(t *testing.T) {
	f := newFixture(t, nil)
	f.add("a", "a1")
	f.add("a", "a2")
	f.refuse()
	f.add("b", "b1")
	f.add("b", "b2")
	f.kill(map[string]string{"b1": "no"})
	var seqs []int64
	require.NoError(t, f.db.NewRaw("SELECT seq FROM outbox_held").Scan(t.Context(), &seqs))
	for lane := range f.leases {
		found, err := f.RepairAll(t.Context(), lane, []string{"default|order|a", "default|order|b", "default|order|c"}, seqs)
		require.NoError(t, err)
		require.Zero(t, found)
	}
	require.Equal(t, 1, f.count("outbox_block WHERE state = 'failed'"))
	require.Equal(t, 1, f.count("outbox_block WHERE state = 'dead'"))
	require.Equal(t, 2, f.count("outbox_held WHERE retry_after = 'infinity'"))
}

// The locks are those of one lane, and what was looked at are some of its keys and rows: all else stays, wrong or not.
func TestReconcileRepairsOnlyWhatItHasLooked(t *testing.T) {
	f := newFixture(t, nil)
	f.bystander(5, "refused", 100, false)
	f.bystander(5, "dead", 200, true)
	f.bystander(5, "alone", 300, true)
	f.exec("DELETE FROM outbox_held WHERE ordering_key = 'alone'")
	f.exec(`INSERT INTO outbox_block SELECT l, k, 900, s FROM (VALUES (6, 'none1', 'failed'), (6, 'none2', 'draining'), (6, 'none3', 'dead'),
		(5, 'other1', 'failed'), (5, 'other2', 'draining'), (5, 'other3', 'dead'), (5, 'other4', 'failed')) v (l, k, s)`)
	const rest = `, '', '', 'bystander', 's', 'text/plain', '{}', 'x', `
	f.exec(insertHeld+"NULL"+rest+"'infinity'", 5)
	f.exec(insertHeld+"'other4'"+rest+"now() - interval '1 minute' FROM generate_series(1, 2)", 5)
	before := f.bystanders()
	found, err := f.RepairAll(t.Context(), 5, []string{"none1", "none2", "none3", "refused", "dead", "alone"},
		[]int64{100, 101, 102, 200, 201, 202, 300, 301, 302})
	require.NoError(t, err)
	require.Zero(t, found)
	require.Equal(t, before, f.bystanders())
}

func TestReconcileTells(t *testing.T) {
	var log bytes.Buffer
	reader := sdkmetric.NewManualReader()
	f := newFixture(t, &outbox.Config{
		Logger: slog.New(slog.NewTextHandler(&log, nil)), MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
	})
	require.NoError(t, f.EnsurePartitions(t.Context()))
	require.Zero(t, f.reconcile())
	require.Empty(t, log.String())
	woken := 0
	f.Relay().OnWake(func(outbox.LaneSet) { woken++ })
	f.exec("DELETE FROM outbox_lane WHERE lane < 2")
	require.EqualValues(t, 2, f.reconcile().Total())
	require.Contains(t, log.String(), "level=WARN")
	require.Contains(t, log.String(), "lanes=2")
	require.Equal(t, 1, woken)
	var rm metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &rm))
	sum, ok := rm.ScopeMetrics[0].Metrics[0].Data.(metricdata.Sum[int64])
	require.True(t, ok)
	require.Equal(t, "oncebox.outbox.reconciled", rm.ScopeMetrics[0].Metrics[0].Name)
	kinds := map[string]int64{}
	for _, p := range sum.DataPoints {
		kind, _ := p.Attributes.Value("kind")
		kinds[kind.AsString()] = p.Value
	}
	require.Equal(t, map[string]int64{"lanes": 2, "leases": 0, "partitions": 0, "blocks": 0, "stuck": 0, "early": 0}, kinds)
}
