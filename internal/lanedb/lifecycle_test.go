package lanedb_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/operator"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

func TestRowLifeCycle(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, nil)
	require.NoError(t, f.Upkeep().EnsurePartitions(ctx))

	f.Record("a", "a1")
	f.Record("a", "a2")
	f.Record("a", "a3")
	require.Equal(t, map[string]string{"a1": "NEW/0", "a2": "NEW/0", "a3": "NEW/0"}, f.Statuses())

	rows := f.Fetch()
	require.Len(t, rows, 3)
	require.Equal(t, "a1", rows[0].Type)
	require.Equal(t, "default|order|a", rows[0].Key)
	require.Equal(t, []byte("a1"), rows[0].Payload)
	require.Equal(t, map[string]string{"a1": "PUBLISHING/0", "a2": "PUBLISHING/0", "a3": "PUBLISHING/0"}, f.Statuses())

	lane := rows[0].Lane
	lease := f.Leases[lane]
	held, err := lanedb.Of(f.Handle()).Moves.Settle(ctx, []lanedb.Lease{lease}, []outboxdb.RowID{{Lane: lane, Seq: rows[0].Sequence}})
	require.NoError(t, err)
	require.True(t, held[lane])

	require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(ctx, lease, []lanedb.Outcome{
		{Seq: rows[1].Sequence, Verdict: lanedb.Refused, Error: "no\x00\xff"},
		{Seq: rows[2].Sequence, Verdict: lanedb.Follower},
	}))
	require.Equal(t, map[string]string{"a1": "SENT/0", "a2": "FAILED/1", "a3": "NEW/0"}, f.Statuses())

	due, _, err := lanedb.Of(f.Handle()).Held.Due(ctx, []int16{lane}, 0)
	require.NoError(t, err)
	require.Len(t, due, 1, "a follower is not due")
	change := f.Change(lane)
	require.NoError(t, lanedb.Of(f.Handle()).Held.RetryHeld(ctx, lease, change, lanedb.Outcome{Seq: due[0].Sequence, Wait: time.Hour, Error: "again"}))
	require.NoError(t, f.GiveUp(lease, change, due[0].Sequence, "for good"))
	require.Equal(t, map[string]string{"a1": "SENT/0", "a2": "DEAD/3", "a3": "NEW/0"}, f.Statuses())

	letters, err := f.Dead().List(ctx, operator.DeadFilter{}, nil, 10)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	require.Equal(t, "for good", letters[0].Error)
	require.NoError(t, f.Dead().Replay(ctx, letters[0].ID, ann))
	require.ErrorIs(t, f.Dead().Replay(ctx, letters[0].ID, ann), operator.ErrNotDead)

	queue, err := lanedb.Of(f.Handle()).Held.Queue(ctx, lane, "default|order|a", 0)
	require.NoError(t, err)
	require.Len(t, queue, 2)
	require.Equal(t, "a2", queue[0].Type)

	_, err = lanedb.Of(f.Handle()).Held.SettleHeld(ctx, lease, change, "default|order|a", []int64{queue[0].Sequence})
	require.ErrorIs(t, err, lanedb.ErrFenced, "the replay bumped the counter")
	change = f.Change(lane)
	lifted, err := lanedb.Of(f.Handle()).Held.SettleHeld(ctx, lease, change, "default|order|a", []int64{queue[0].Sequence})
	require.NoError(t, err)
	require.False(t, lifted)
	due, _, err = lanedb.Of(f.Handle()).Held.Due(ctx, []int16{lane}, 0)
	require.NoError(t, err)
	require.Len(t, due, 1, "the follower became due")
	lifted, err = lanedb.Of(f.Handle()).Held.SettleHeld(ctx, lease, change, "default|order|a", []int64{due[0].Sequence})
	require.NoError(t, err)
	require.True(t, lifted)
	require.Equal(t, map[string]string{"a1": "SENT/0", "a2": "SENT/0", "a3": "SENT/0"}, f.Statuses())

	stats, err := f.State().Stats(ctx)
	require.NoError(t, err)
	stats.SnapshotAge, stats.Sent = 0, 0 // the server counts what was published a second late
	require.Equal(t, outboxstate.Stats{Lanes: 64}, stats)
	mark, err := lanedb.Of(f.Handle()).Log.ReadWatermark(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 3, mark.Seq)
	_, err = lanedb.Of(f.Handle()).Leases.Renew(ctx, []lanedb.Lease{lease}, time.Minute)
	require.NoError(t, err)
	all, err := lanedb.Of(f.Handle()).Leases.Heartbeat(ctx, "me", 0, time.Minute)
	require.NoError(t, err)
	require.Equal(t, lanedb.Membership{Alive: 1, Lanes: 64}, all)
	require.NoError(t, lanedb.Of(f.Handle()).Leases.Unregister(ctx, "me"))
	require.NoError(t, lanedb.Of(f.Handle()).Leases.Release(ctx, []lanedb.Lease{lease}))
	require.NoError(t, f.Clean(ctx))
}

func TestDiscardLetsTheKeyGo(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, nil)
	id := f.Record("a", "a1")
	f.Record("a", "a2")
	rows := f.Fetch()
	lease := f.Leases[rows[0].Lane]
	require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(ctx, lease, []lanedb.Outcome{
		{Seq: rows[0].Sequence, Verdict: lanedb.Dead, Error: "bad"},
		{Seq: rows[1].Sequence, Verdict: lanedb.Follower},
	}))
	require.NoError(t, f.Dead().Discard(ctx, id, ann))
	due, _, err := lanedb.Of(f.Handle()).Held.Due(ctx, []int16{lease.Lane}, 0)
	require.NoError(t, err)
	require.Len(t, due, 1)
	lifted, err := lanedb.Of(f.Handle()).Held.SettleHeld(ctx, lease, f.Change(lease.Lane), due[0].Key, []int64{due[0].Sequence})
	require.NoError(t, err)
	require.True(t, lifted)
}
