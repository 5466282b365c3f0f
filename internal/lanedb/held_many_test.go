package lanedb_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// release releases keys of one lane and returns the keys that are free.
func (f *fixture) release(lease lanedb.Lease, change int64, keys ...string) (free []string, err error) {
	f.T.Helper()
	var list []lanedb.LaneKey
	for _, key := range keys {
		list = append(list, lanedb.LaneKey{Lane: lease.Lane, Key: key})
	}
	lifted, held, err := lanedb.Of(f.Handle()).Held.ReleaseKeys(f.T.Context(), []lanedb.LoadedLease{{Lease: lease, Change: change}}, list)
	if err == nil && !held[lease.Lane] {
		require.Empty(f.T, lifted)
		return nil, lanedb.ErrFenced
	}
	for _, k := range lifted {
		free = append(free, k.Key)
	}
	return free, err
}

// loaded returns the leases of all lanes as their owner knows them.
func (f *fixture) loaded() (out []lanedb.LoadedLease) {
	f.T.Helper()
	for n, l := range f.Leases {
		out = append(out, lanedb.LoadedLease{Lease: l, Change: f.Change(n)})
	}
	return out
}

// Rows of many lanes are given up at once: unordered ones, one whose key waits then, and one whose key goes on. The row behind
// it becomes due, and a key with nothing behind is free. A lane that an operator has changed is left out.
func TestManyHeldRowsAreGivenUp(t *testing.T) {
	f := newFixture(t, nil)
	for _, key := range []string{"dead", "abandoned", "last", "changed"} {
		f.Record(key, key+"1")
	}
	f.Record("dead", "dead2")
	f.Record("abandoned", "abandoned2")
	for f.Count("outbox WHERE ordering_key IS NULL") == 0 { // its lane is that of a random id
		_, err := pgtest.Add(t.Context(), f.DB.DB, f, "order", []byte("x"))
		require.NoError(t, err)
		f.Exec("DELETE FROM outbox WHERE ordering_key IS NULL AND lane = (SELECT lane FROM outbox WHERE event_type = 'changed1')")
	}
	f.Exec("UPDATE outbox SET event_type = 'unordered' WHERE ordering_key IS NULL")
	outcomes := map[string]lanedb.HeldOutcome{}
	lanes := map[string]int16{}
	for _, r := range f.Fetch() {
		verdict, o := lanedb.Refused, lanedb.HeldOutcome{RowID: outboxdb.RowID{Lane: r.Lane, Seq: r.Sequence}, Verdict: lanedb.Abandoned, Error: "no"}
		switch r.Type {
		case "dead2", "abandoned2":
			verdict = lanedb.Follower
		case "dead1", "unordered":
			o.Verdict = lanedb.Dead
		}
		require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(t.Context(), f.Leases[r.Lane], []lanedb.Outcome{{Seq: r.Sequence, Verdict: verdict, Error: "no"}}))
		outcomes[r.Type], lanes[r.Type] = o, r.Lane
	}
	require.NotContains(t, []int16{lanes["dead1"], lanes["abandoned1"], lanes["last1"], lanes["unordered"]}, lanes["changed1"])
	leases := f.loaded()
	f.Exec("UPDATE outbox_lane SET change = change + 1 WHERE lane = ?", lanes["changed1"])
	gone, held, err := lanedb.Of(f.Handle()).Held.GiveUpHeld(t.Context(), leases, []lanedb.HeldOutcome{
		outcomes["changed1"], outcomes["unordered"], outcomes["last1"], outcomes["abandoned1"], outcomes["dead1"],
	})
	require.NoError(t, err)
	require.Len(t, held, 63)
	require.False(t, held[lanes["changed1"]])
	require.ElementsMatch(t, []lanedb.GivenUp{
		{RowID: outcomes["unordered"].RowID}, {RowID: outcomes["last1"].RowID, Lifted: true},
		{RowID: outcomes["abandoned1"].RowID}, {RowID: outcomes["dead1"].RowID},
	}, gone)
	require.Equal(t, []string{"abandoned2", "changed1"}, f.Due())
	require.Equal(t, 1, f.Count("outbox_block WHERE state = 'dead' AND head_seq = ?", outcomes["dead1"].Seq))
	require.Equal(t, 3, f.Count("outbox_block"), "and those of abandoned2 and changed1")
	require.Equal(t, 4, f.Count("outbox_dead WHERE retry_count = 2 AND error_message = 'no'"))
}

// A row that was made due by hand, before its turn, is not given up: its block would stand for the rows in front of it too.
func TestOnlyTheFirstRowOfAKeyIsGivenUp(t *testing.T) {
	f := newFixture(t, nil)
	f.Record("a", "a1")
	f.Record("a", "a2")
	rows := f.Fetch()
	lease := f.Leases[rows[0].Lane]
	require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(t.Context(), lease, []lanedb.Outcome{
		{Seq: rows[0].Sequence, Verdict: lanedb.Refused, Error: "no"}, {Seq: rows[1].Sequence, Verdict: lanedb.Follower},
	}))
	require.NoError(t, f.GiveUp(lease, f.Change(lease.Lane), rows[1].Sequence, "no"))
	require.Zero(t, f.Count("outbox_dead"))
	require.NoError(t, f.GiveUp(lease, f.Change(lease.Lane), rows[0].Sequence, "no"))
	require.Equal(t, 1, f.Count("outbox_dead"))
}

func TestManyKeysAreReleased(t *testing.T) {
	f := newFixture(t, nil)
	errs := map[string]string{}
	var keys []lanedb.LaneKey
	for i := range 20 {
		name := fmt.Sprint("k", i)
		f.Record(name, name)
		errs[name] = "no"
		if i%2 == 0 {
			f.Record(name, name+"-2")
		}
	}
	for _, r := range f.Fetch() {
		if errs[r.Type] != "" {
			keys = append(keys, lanedb.LaneKey{Lane: r.Lane, Key: r.Key})
		}
	}
	f.Kill(errs)
	f.Exec("DELETE FROM outbox_dead; UPDATE outbox_block SET state = 'draining' WHERE ordering_key <> 'default|order|k1'")
	lifted, held, err := lanedb.Of(f.Handle()).Held.ReleaseKeys(t.Context(), f.loaded(), keys)
	require.NoError(t, err)
	require.Len(t, held, 64)
	require.Len(t, lifted, 9)
	require.Equal(t, 11, f.Count("outbox_block"), "those with a row behind, and the one that waits for an operator")
	require.Len(t, f.Due(), 10)
}
