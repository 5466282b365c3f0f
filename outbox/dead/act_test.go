package dead_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox/dead"
)

func TestReplayOfManyKeepsTheOrderOfEachKey(t *testing.T) {
	f := newFixture(t, nil)
	errs, want := map[string]string{}, map[string][]string{}
	for i := range 5 {
		for _, key := range []string{"a", "b", "c"} {
			name := fmt.Sprintf("%s%d", key, i)
			f.Record(key, name)
			if i < 4 { // the fifth waits behind them
				errs[name] = "no"
			}
			want["default|order|"+key] = append(want["default|order|"+key], name)
		}
	}
	f.Kill(errs)
	f.Exec("UPDATE outbox_dead SET died_at = now() - seq * interval '1 hour'") // the last one died first
	require.Empty(t, f.Due())

	var progress []int64
	n, err := f.Dead().ReplayAll(t.Context(), operator.DeadFilter{Topic: "order"}, ann, &operator.Bulk{
		BatchSize: 5, Progress: func(done int64) { progress = append(progress, done) },
	})
	require.NoError(t, err)
	require.EqualValues(t, 12, n)
	require.Equal(t, []int64{5, 10, 12}, progress)
	require.Zero(t, f.Count("outbox_dead"))
	require.Equal(t, []string{"a0", "b0", "c0"}, f.Due(), "the first of each key and no other")
	require.Equal(t, want, f.Drain())
	require.Zero(t, f.Count("outbox_block"))
	require.Equal(t, 12, f.Count("oncebox_audit WHERE actor = 'ann' AND action = 'replay' AND reason = 'tried it'"))
}

func TestReplayGivesAllAttemptsBackAndKeepsTheRest(t *testing.T) {
	f := newFixture(t, nil)
	id := f.Record("a", "a1", event.WithHeader("k", "v"))
	before := f.Fetch()[0]
	f.Kill(map[string]string{"a1": "no"})
	f.Exec("UPDATE outbox_dead SET crashes = 3")
	require.NoError(t, f.Dead().Replay(t.Context(), id, ann))
	rows, err := lanedb.Of(f.Handle()).Held.Queue(t.Context(), before.Lane, before.Key, 0)
	require.NoError(t, err)
	require.Equal(t, before, rows[0])
}

func TestDryRunOnlyCounts(t *testing.T) {
	f := newFixture(t, nil)
	f.Record("a", "a1")
	f.Record("b", "b1")
	f.Kill(map[string]string{"a1": "no", "b1": "no"})
	for _, act := range []func(context.Context, operator.DeadFilter, operator.By, *operator.Bulk) (int64, error){f.Dead().ReplayAll, f.Dead().DiscardAll} {
		n, err := act(t.Context(), operator.DeadFilter{Type: "a1"}, ann, &operator.Bulk{DryRun: true})
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
	}
	require.Equal(t, 2, f.Count("outbox_dead"))
	require.Zero(t, f.Count("oncebox_audit"))
}

// One in 10,000 seconds: after the first one the wait would be longer than the call may last.
func TestRateBoundsTheBatches(t *testing.T) {
	f := newFixture(t, nil)
	dies := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		f.Record(name, name)
		dies[name] = "no"
	}
	f.Kill(dies)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for _, act := range []func(context.Context, operator.DeadFilter, operator.By, *operator.Bulk) (int64, error){f.Dead().ReplayAll, f.Dead().DiscardAll} {
		n, err := act(ctx, operator.DeadFilter{}, ann, &operator.Bulk{Rate: 1e-4})
		require.ErrorContains(t, err, "after 1: wait, for the rate")
		require.EqualValues(t, 1, n)
	}
	require.Equal(t, 1, f.Count("outbox_dead"))
	n, err := f.Dead().ReplayAll(ctx, operator.DeadFilter{}, ann, &operator.Bulk{Rate: 1e6})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

// Two dead letters under one key: that of a topic which goes on after them, and another that blocks.
func TestReplayWaitsForTheDeadLetterThatBlocks(t *testing.T) {
	f := newFixture(t, nil)
	head := f.Record("a", "a1")
	f.Record("a", "a2")
	f.Record("a", "a3")
	f.Kill(map[string]string{"a1": "no", "a2": "no"})
	n, err := f.Dead().ReplayAll(t.Context(), operator.DeadFilter{Type: "a2"}, ann, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	require.Empty(t, f.Due(), "a1 blocks")
	require.Equal(t, 1, f.Count("outbox_block WHERE state = 'dead'"))
	require.NoError(t, f.Dead().Replay(t.Context(), head, ann))
	require.Equal(t, map[string][]string{"default|order|a": {"a1", "a2", "a3"}}, f.Drain())
}

func TestDiscardOfTheHeadLetsAReplayedRowGo(t *testing.T) {
	f := newFixture(t, nil)
	head, second := f.Record("a", "a1"), f.Record("a", "a2")
	f.Record("a", "a3")
	f.Kill(map[string]string{"a1": "no", "a2": "no"})
	require.NoError(t, f.Dead().Replay(t.Context(), second, ann))
	require.NoError(t, f.Dead().Discard(t.Context(), head, ann))
	require.Equal(t, map[string][]string{"default|order|a": {"a2", "a3"}}, f.Drain())
}

// A block that names a dead letter which is not there holds nobody up.
func TestReplayIgnoresABlockWithoutItsDeadLetter(t *testing.T) {
	f := newFixture(t, nil)
	f.Record("a", "a1")
	second := f.Record("a", "a2")
	f.Kill(map[string]string{"a1": "no", "a2": "no"})
	f.Exec("DELETE FROM outbox_dead WHERE event_type = 'a1'")
	require.NoError(t, f.Dead().Replay(t.Context(), second, ann))
	require.Equal(t, []string{"a2"}, f.Due())
}

// The replayed row comes before the row that was the head of the key until then, which must not stay due. Otherwise, as
// soon as the replayed row is dead again, the relay would find the former head, see that its key is blocked, and look again
// without end.
func TestReplayedRowTakesThePlaceOfAFailedHead(t *testing.T) {
	f := newFixture(t, nil)
	first := f.Record("a", "a1")
	f.Kill(map[string]string{"a1": "no"})
	f.Exec("DELETE FROM outbox_block") // a topic that goes on after a dead letter
	f.Record("a", "a2")
	r := f.Fetch()[0]
	outcomes := []lanedb.Outcome{{Seq: r.Sequence, Verdict: lanedb.Refused, Error: "no"}}
	require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(t.Context(), f.Leases[r.Lane], outcomes))
	require.Equal(t, []string{"a2"}, f.Due())
	require.NoError(t, f.Dead().Replay(t.Context(), first, ann))
	require.Equal(t, []string{"a1"}, f.Due())
	letters := f.Count("outbox_dead")
	require.Zero(t, letters)
	rows, err := lanedb.Of(f.Handle()).Held.Queue(t.Context(), r.Lane, r.Key, 0)
	require.NoError(t, err)
	require.NoError(t, f.GiveUp(f.Leases[r.Lane], f.Change(r.Lane), rows[0].Sequence, "again"))
	require.Empty(t, f.Due())
	require.NoError(t, f.Dead().Replay(t.Context(), first, ann))
	require.Equal(t, map[string][]string{r.Key: {"a1", "a2"}}, f.Drain())
}

// An operator of one tenant neither sees nor touches a dead letter of another one.
func TestDeadLetterOfAnotherTenant(t *testing.T) {
	f := newFixture(t, nil)
	ids := map[string]string{}
	for _, act := range []string{"shown", "replayed", "discarded"} {
		ids[act] = f.Record(act, act)
		f.Kill(map[string]string{act: "no"})
	}
	letter, err := f.Dead().Show(t.Context(), ids["shown"], dead.OfTenant("default"))
	require.NoError(t, err)
	require.Equal(t, "default", letter.TenantID)
	by := operator.By{Actor: "ann", Reason: "test"}
	for _, tenant := range []string{"acme", ""} {
		_, err = f.Dead().Show(t.Context(), ids["shown"], dead.OfTenant(tenant))
		require.ErrorIs(t, err, operator.ErrNotDead)
		require.ErrorIs(t, f.Dead().Replay(t.Context(), ids["replayed"], by, dead.OfTenant(tenant)), operator.ErrNotDead)
		require.ErrorIs(t, f.Dead().Discard(t.Context(), ids["discarded"], by, dead.OfTenant(tenant)), operator.ErrNotDead)
	}
	n, err := f.Dead().Count(t.Context(), operator.DeadFilter{})
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	require.NoError(t, f.Dead().Replay(t.Context(), ids["replayed"], by, dead.OfTenant("default")))
	require.NoError(t, f.Dead().Discard(t.Context(), ids["discarded"], by, dead.OfTenant("default")))
	n, err = f.Dead().Count(t.Context(), operator.DeadFilter{})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

func TestUnorderedRowsAreReplayed(t *testing.T) {
	f := newFixture(t, nil)
	for range 3 {
		_, err := pgtest.Add(t.Context(), f.DB.DB, f, "order", []byte("x"), event.WithType("u"))
		require.NoError(t, err)
	}
	f.Kill(map[string]string{"u": "no"})
	n, err := f.Dead().ReplayAll(t.Context(), operator.DeadFilter{}, ann, nil)
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	require.Equal(t, []string{"u", "u", "u"}, f.Due())
	require.Zero(t, f.Count("outbox_block"))
}

func TestDiscardOfManyLetsTheirKeysGo(t *testing.T) {
	f := newFixture(t, nil)
	for _, key := range []string{"a", "b", "c"} {
		f.Record(key, key+"1")
		f.Record(key, key+"2")
	}
	f.Kill(map[string]string{"a1": "no", "b1": "no", "c1": "other"})
	n, err := f.Dead().DiscardAll(t.Context(), operator.DeadFilter{Error: "no"}, ann, &operator.Bulk{BatchSize: 1})
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	require.Equal(t, map[string][]string{"default|order|a": {"a2"}, "default|order|b": {"b2"}}, f.Drain())
	require.Equal(t, []string{"c1"}, f.walk(operator.DeadFilter{}, 10))
	require.Equal(t, 2, f.Count("oncebox_audit WHERE action = 'discard'"))
}

// Letters that arrive while a replay runs are not replayed by it, or it might never end.
func TestReplayOfManyLeavesWhatDiesMeanwhile(t *testing.T) {
	f := newFixture(t, nil)
	for _, key := range []string{"a", "b", "c", "d"} {
		f.Record(key, key+"1")
	}
	f.Kill(map[string]string{"a1": "no", "b1": "no", "c1": "no", "d1": "no"})
	n, err := f.Dead().ReplayAll(t.Context(), operator.DeadFilter{}, ann, &operator.Bulk{BatchSize: 1, Progress: func(done int64) {
		f.Exec(`INSERT INTO outbox_dead (` + deadInsertColumns + `) SELECT 1000000 + ` + fmt.Sprint(done) + `, gen_random_uuid(), now(), now(), 0, 1, 63,
			5, 0, 't', 'order', NULL, '', '', 'late', 'test', 'text/plain', '{}', 'x', clock_timestamp(), 'no', 'f'`)
		require.Less(t, done, int64(10))
	}})
	require.NoError(t, err)
	require.EqualValues(t, 4, n)
	require.Equal(t, 4, f.Count("outbox_dead WHERE event_type = 'late'"))
}

func TestOperatorsShareTheWork(t *testing.T) {
	f := newFixture(t, nil)
	f.Exec(`INSERT INTO outbox_dead (` + deadInsertColumns + `) ` + fmt.Sprintf(deadInsertRows, 2000))
	f.Exec("UPDATE outbox_dead SET died_at = now() - interval '1 day'")
	acts := []func(context.Context, operator.DeadFilter, operator.By, *operator.Bulk) (int64, error){
		f.Dead().ReplayAll, f.Dead().DiscardAll, f.Dead().ReplayAll, f.Dead().DiscardAll,
	}
	moved, errs := make([]int64, len(acts)), make([]error, len(acts))
	var wg sync.WaitGroup
	for i, act := range acts {
		wg.Go(func() {
			moved[i], errs[i] = act(t.Context(), operator.DeadFilter{}, ann, &operator.Bulk{BatchSize: 50})
		})
	}
	wg.Wait()
	sum := int64(0)
	for i := range acts {
		require.NoError(t, errs[i])
		sum += moved[i]
	}
	require.EqualValues(t, 2000, sum, "each dead letter once")
	require.Equal(t, 2000, f.Count("oncebox_audit"))
	require.Equal(t, int(moved[0]+moved[2]), f.Count("outbox_held"))
	require.Zero(t, f.Count("outbox_dead"))
}

// A statement that locks several lanes takes them in their order. A replay that waits for the lowest has none of the others.
func TestLanesAreLockedInTheirOrder(t *testing.T) {
	f := newFixture(t, nil)
	f.Exec(`INSERT INTO outbox_dead (` + deadInsertColumns + `) ` + fmt.Sprintf(deadInsertRows, 64))
	f.Exec("UPDATE outbox_dead SET died_at = now() - interval '1 day'")
	tx, err := f.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.Exec("SELECT FROM outbox_lane WHERE lane = 0 FOR NO KEY UPDATE")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := f.Dead().ReplayAll(context.WithoutCancel(t.Context()), operator.DeadFilter{}, ann, nil)
		done <- err
	}()
	await.True(t, func() bool {
		return f.Count(`pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%outbox_lane%'
			AND pid IN (SELECT pid FROM pg_locks WHERE relation = 'outbox_lane'::regclass)`) > 0
	}, "the replay waits for lane 0")
	require.Equal(t, 63, f.free(), "the other lanes are free while it waits")
	require.Equal(t, 64, f.Count("outbox_dead"))
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-done)
	require.Zero(t, f.Count("outbox_dead"))
}

// free counts the lanes whose rows nobody has locked.
func (f *fixture) free() (n int) {
	f.T.Helper()
	require.NoError(f.T, f.DB.NewRaw("SELECT count(*) FROM (SELECT FROM outbox_lane FOR NO KEY UPDATE SKIP LOCKED) x").Scan(f.T.Context(), &n))
	return n
}

func TestOwnersHearOfReplayAndDiscard(t *testing.T) {
	f := newFixture(t, nil)
	first, second := f.Record("a", "a1"), f.Record("b", "b1")
	rows := f.Fetch()
	f.Kill(map[string]string{"a1": "no", "b1": "no"})
	lanes := map[string]int16{rows[0].Type: rows[0].Lane, rows[1].Type: rows[1].Lane}
	woken := 0
	f.Handle().OnWake(func(outboxdb.LaneSet) { woken++ })
	before := f.Change(lanes["a1"])
	require.NoError(t, f.Dead().Replay(t.Context(), first, ann))
	require.Equal(t, before+1, f.Change(lanes["a1"]))
	before = f.Change(lanes["b1"])
	require.NoError(t, f.Dead().Discard(t.Context(), second, ann))
	require.Equal(t, before+1, f.Change(lanes["b1"]))
	require.Equal(t, 2, woken)
}

// The owner of the lane does not know yet of the block that a replay made, and a row that comes after it dies.
func TestRowThatDiesUnderADrainingBlock(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, nil)
	f.Record("a", "a1")
	f.Record("a", "a2")
	rows := f.Fetch()
	lease := f.Leases[rows[0].Lane]
	require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(ctx, lease, []lanedb.Outcome{{Seq: rows[0].Sequence, Verdict: lanedb.Abandoned, Error: "no"}}))
	require.NoError(t, f.Dead().Replay(ctx, rows[0].ID, ann))
	require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(ctx, lease, []lanedb.Outcome{{Seq: rows[1].Sequence, Verdict: lanedb.Dead, Error: "no"}}))
	blocks, err := lanedb.Of(f.Handle()).Held.Blocks(ctx, []int16{lease.Lane})
	require.NoError(t, err)
	require.Equal(t, []lanedb.Block{{Key: "default|order|a", State: "dead"}}, blocks[lease.Lane].Blocks)
	require.NoError(t, f.Dead().Discard(ctx, rows[1].ID, ann))
	due, _, err := lanedb.Of(f.Handle()).Held.Due(ctx, []int16{lease.Lane}, 0)
	require.NoError(t, err)
	require.Len(t, due, 1)
	require.Equal(t, "a1", due[0].Type)
}
