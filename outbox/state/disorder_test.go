package state_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/operator"
)

// insertHeld stores held rows. The arguments are the lane, and the columns from ordering_key on.
const insertHeld = `INSERT INTO outbox_held (seq, id, occurred_at, created_at, aggregate_version, schema_version, lane, retry_count, crashes,
	tenant_id, topic, ordering_key, aggregate_type, aggregate_id, event_type, source, content_type, event_metadata, payload, retry_after)
	SELECT nextval('outbox_seq'), gen_random_uuid(), now(), now(), 0, 1, ?, 0, 0, 't', 'order', `

// mend runs the statements that are printed until nothing is wrong, and looks at the lane as its owner does then.
func (f *fixture) mend(lane int16) {
	f.T.Helper()
	for range 3 {
		for _, d := range f.Disorder() {
			require.Regexp(f.T, `^BEGIN; UPDATE .*outbox_lane SET change = change \+ 1 WHERE lane IN \(`, d.Mend)
			f.Exec(d.Mend)
		}
		f.releaseStalled(lane)
	}
	require.Empty(f.T, f.Disorder())
}

// releaseStalled does what the owner of a lane does with the keys that are stalled when it has read the blocks.
func (f *fixture) releaseStalled(lane int16) {
	f.T.Helper()
	blocks, err := lanedb.Of(f.Handle()).Held.Blocks(f.T.Context(), []int16{lane})
	require.NoError(f.T, err)
	var keys []lanedb.LaneKey
	for _, b := range blocks[lane].Blocks {
		if b.Stalled && b.State != "dead" {
			keys = append(keys, lanedb.LaneKey{Lane: lane, Key: b.Key})
		}
	}
	_, _, err = lanedb.Of(f.Handle()).Held.ReleaseKeys(f.T.Context(), []lanedb.LoadedLease{{Lease: f.Leases[lane], Change: blocks[lane].Change}}, keys)
	require.NoError(f.T, err)
}

func (f *fixture) laneOf(name string) (lane int16) {
	f.T.Helper()
	require.NoError(f.T, f.DB.NewRaw("SELECT lane FROM outbox_held WHERE event_type = ?", name).Scan(f.T.Context(), &lane))
	return lane
}

// refuse holds the head of each key that waits in the lanes for an hour, and the rest of it behind that.
func (f *fixture) refuse() {
	f.T.Helper()
	outcomes, seen := map[int16][]lanedb.Outcome{}, map[string]bool{}
	for _, r := range f.Fetch() {
		o := lanedb.Outcome{Seq: r.Sequence, Verdict: lanedb.Follower}
		if !seen[r.Key] || r.Key == "" {
			o = lanedb.Outcome{Seq: r.Sequence, Verdict: lanedb.Refused, Wait: time.Hour, Error: "no"}
		}
		seen[r.Key] = true
		outcomes[r.Lane] = append(outcomes[r.Lane], o)
	}
	for lane, list := range outcomes {
		require.NoError(f.T, lanedb.Of(f.Handle()).Moves.Hold(f.T.Context(), f.Leases[lane], list))
	}
}

// Whatever the relay and operators leave behind is left alone.
func TestNoDisorderInOrdinaryTables(t *testing.T) {
	f := newFixture(t, nil)
	for i := range 3 {
		f.Record("refused", fmt.Sprintf("refused %d", i))
	}
	f.RecordUnordered("unordered")
	f.refuse()
	for _, key := range []string{"dead", "replayed", "discarded", "drained"} {
		f.Record(key, key+" head")
		if key != "drained" {
			f.Record(key, key+" follower")
		}
	}
	f.Kill(map[string]string{"dead head": "no", "replayed head": "no", "discarded head": "no", "drained head": "no"})
	_, err := f.Dead().ReplayAll(t.Context(), operator.DeadFilter{Type: "replayed head"}, ann, nil)
	require.NoError(t, err)
	for _, name := range []string{"discarded head", "drained head"} {
		_, err = f.Dead().DiscardAll(t.Context(), operator.DeadFilter{Type: name}, ann, nil)
		require.NoError(t, err)
	}
	f.Record("new", "new 1")
	require.Equal(t, []string{"discarded follower", "replayed head"}, f.Due())
	require.Equal(t, 1, f.Count("outbox_block WHERE ordering_key LIKE '%drained'"), "its owner lifts it when it looks")
	require.Empty(t, f.Disorder())
}

// Each way in which rows can be left behind: how it is made, how many keys or events are found, and what leaves after the statements that are
// printed.
func TestDisorderIsFoundAndMended(t *testing.T) {
	key := "default|order|a"
	all := map[string][]string{key: {"a1", "a2", "a3"}}
	f := newFixture(t, nil)
	require.NoError(t, f.Upkeep().EnsurePartitions(t.Context()))
	f.Exec("SELECT setval('outbox_seq', 1000)") // room in front
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
		want   int64
		leaves map[string][]string
	}{
		"a head that is gone": {
			broken: "DELETE FROM outbox_held WHERE event_type = 'a1'",
			want:   1, leaves: map[string][]string{key: {"a2", "a3"}},
		},
		"a head that waits for ever": {
			broken: "UPDATE outbox_held SET retry_after = 'infinity'",
			want:   1, leaves: all,
		},
		"held rows without a block": {
			broken: "DELETE FROM outbox_block; UPDATE outbox_held SET retry_after = now() WHERE event_type = 'a1'",
			want:   1, leaves: all,
		},
		"held rows that wait for ever without a block": {
			broken: "DELETE FROM outbox_block; UPDATE outbox_held SET retry_after = 'infinity'",
			want:   1, leaves: all,
		},
		"a block with nothing behind it": {
			broken: "DELETE FROM outbox_held",
			want:   1, leaves: map[string][]string{},
		},
		"held rows in front of a dead letter, without a block": {
			broken: `DELETE FROM outbox_block; UPDATE outbox_held SET retry_after = now() WHERE event_type <> 'a2';
				WITH gone AS (DELETE FROM outbox_held WHERE event_type = 'a3' RETURNING *) INSERT INTO outbox_dead
				SELECT (jsonb_populate_record(NULL::outbox_dead, to_jsonb(gone) || jsonb_build_object('died_at', now()))).* FROM gone`,
			want: 1, leaves: map[string][]string{key: {"a1", "a2"}},
		},
		"a head that waits for ever, to be delivered later": {
			broken: `UPDATE outbox_held SET retry_after = 'infinity';
				UPDATE outbox_held SET not_before = now() + interval '1 hour' WHERE event_type = 'a1'`,
			want: 1, leaves: map[string][]string{},
		},
		"an unordered row that waits for ever, to be delivered later": {
			broken: `DELETE FROM outbox_block; DELETE FROM outbox_held WHERE event_type <> 'a1';
				UPDATE outbox_held SET ordering_key = NULL, retry_after = 'infinity', not_before = now() + interval '1 hour'`,
			want: 1, leaves: map[string][]string{},
		},
		"a dead letter that is gone": {
			broken: "DELETE FROM outbox_dead", dead: true,
			want: 1, leaves: map[string][]string{key: {"a2", "a3"}},
		},
		"a dead letter that is gone with all that followed": {
			broken: "DELETE FROM outbox_dead; DELETE FROM outbox_held", dead: true,
			want: 1, leaves: map[string][]string{},
		},
		"a dead letter without its block": {
			broken: "DELETE FROM outbox_block", dead: true,
			want: 1, leaves: map[string][]string{},
		},
		"a row that is due behind a dead letter": {
			broken: "UPDATE outbox_held SET retry_after = now() WHERE event_type = 'a2'", dead: true,
			want: 1, leaves: map[string][]string{},
		},
		"a follower that is due before its head": {
			broken: `UPDATE outbox_held SET retry_after = now() - interval '1 minute' WHERE event_type <> 'a1';
				UPDATE outbox_held SET retry_after = now() WHERE event_type = 'a1'`,
			want: 2, leaves: all,
		},
		"an unordered row that waits for ever": {
			broken: `DELETE FROM outbox_block; DELETE FROM outbox_held WHERE event_type <> 'a1';
				UPDATE outbox_held SET ordering_key = NULL, retry_after = 'infinity'`,
			want: 1, leaves: map[string][]string{"": {"a1"}},
		},
	} {
		for where, add := range bystanders {
			t.Run(name+" "+where, func(t *testing.T) {
				f.Exec("TRUNCATE outbox, outbox_held, outbox_dead, outbox_block")
				for _, event := range []string{"a1", "a2", "a3"} {
					f.Record("a", event)
				}
				lane := f.Leases[f.Fetch()[0].Lane]
				if c.dead {
					f.Kill(map[string]string{"a1": "no"})
				} else {
					f.refuse()
				}
				f.Exec(c.broken)
				f.readable()
				add(lane.Lane)
				before := f.bystanders()
				seen := f.Change(lane.Lane)
				found := f.Disorder()
				require.Len(t, found, 1)
				require.Equal(t, c.want, found[0].Count, found[0].Problem)
				f.mend(lane.Lane)
				require.Equal(t, before, f.bystanders(), "they are none of its business")
				_, err := lanedb.Of(f.Handle()).Held.SettleHeld(t.Context(), lane, seen, key, []int64{})
				require.ErrorIs(t, err, lanedb.ErrFenced, "the owner knows blocks of before")
				require.Equal(t, c.leaves, f.Drain())
			})
		}
	}
}

// readable reads all that operators look at, which is needed most while something is wrong.
func (f *fixture) readable() {
	f.T.Helper()
	failing, err := f.State().Failing(f.T.Context(), 10)
	require.NoError(f.T, err)
	dead, err := f.Dead().List(f.T.Context(), operator.DeadFilter{}, nil, 10)
	require.NoError(f.T, err)
	_, err = f.State().Stats(f.T.Context())
	require.NoError(f.T, err)
	for _, r := range failing {
		f.located(r.ID)
	}
	for _, d := range dead {
		f.located(d.ID)
	}
}

// bystander stores a key with nothing wrong about it: a head, refused for an hour or dead, a row behind it, and an unordered one
// that was refused.
func (f *fixture) bystander(lane int16, key string, seq int64, dead bool) {
	f.T.Helper()
	held := strings.Replace(insertHeld, "nextval('outbox_seq')", "?", 1)
	const rest = `, '', '', 'bystander', 's', 'text/plain', '{}', 'x', `
	f.Exec(held+"?"+rest+"now() + interval '1 hour'", seq, lane, key)
	f.Exec(held+"?"+rest+"'infinity'", seq+1, lane, key)
	f.Exec(held+"NULL"+rest+"now() + interval '1 hour'", seq+2, lane)
	f.Exec("INSERT INTO outbox_block SELECT ?, ?, ?, CASE WHEN ? THEN 'dead' ELSE 'failed' END", lane, key, seq, dead)
	if dead {
		f.Exec("WITH gone AS (DELETE FROM outbox_held WHERE seq = ? RETURNING *) INSERT INTO outbox_dead "+
			"SELECT (jsonb_populate_record(NULL::outbox_dead, to_jsonb(gone) || jsonb_build_object('died_at', now()))).* FROM gone", seq)
	}
}

// bystanders returns all that there is of them.
func (f *fixture) bystanders() (all []string) {
	f.T.Helper()
	require.NoError(f.T, f.DB.NewRaw(`
		SELECT 'held ' || lane || seq || retry_after FROM outbox_held WHERE event_type = 'bystander'
		UNION ALL SELECT 'dead ' || seq FROM outbox_dead WHERE event_type = 'bystander'
		UNION ALL SELECT 'block ' || b FROM outbox_block b WHERE head_seq < 1000 OR head_seq >= 1000000
		ORDER BY 1`).Scan(f.T.Context(), &all))
	return all
}

// A block that was lost comes back as that of the dead letter in front, which an operator decides about.
func TestMendKeepsAKeyBehindItsDeadLetter(t *testing.T) {
	f := newFixture(t, nil)
	head := f.Record("a", "a1")
	f.Record("a", "a2")
	f.Record("a", "a3")
	f.Kill(map[string]string{"a1": "no", "a2": "no"})
	f.Exec("DELETE FROM outbox_block; UPDATE outbox_held SET retry_after = now()")
	f.mend(f.laneOf("a3"))
	require.Equal(t, 1, f.Count("outbox_block WHERE state = 'dead' AND head_seq = (SELECT min(seq) FROM outbox_dead)"))
	require.Empty(t, f.Due())
	f.Exec("DELETE FROM outbox_dead WHERE event_type = 'a2'")
	require.NoError(t, f.Dead().Replay(t.Context(), head, ann))
	require.Equal(t, map[string][]string{"default|order|a": {"a1", "a3"}}, f.Drain())
}
