package lanedb_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// expire ends all leases, as time does.
func (f *fixture) expire() {
	f.T.Helper()
	_, err := f.DB.ExecContext(f.T.Context(), "UPDATE outbox_lane SET lease_until = '-infinity'")
	require.NoError(f.T, err)
}

func TestFormerOwnerChangesNothing(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, nil)
	f.Record("a", "a1")
	f.Record("a", "a2")
	rows := f.Fetch()
	old := f.Leases[rows[0].Lane]
	id := outboxdb.RowID{Lane: old.Lane, Seq: rows[0].Sequence}
	f.expire()
	f.Claim("successor")
	require.Equal(t, old.Epoch+1, f.Leases[old.Lane].Epoch)
	require.Equal(t, rows[1].Sequence, f.Leases[old.Lane].InFlight.UpTo, "the successor knows what may have been on its way")

	held, err := lanedb.Of(f.Handle()).Moves.Settle(ctx, []lanedb.Lease{old}, []outboxdb.RowID{id})
	require.NoError(t, err)
	require.False(t, held[old.Lane])
	require.ErrorIs(t, lanedb.Of(f.Handle()).Moves.Hold(ctx, old, []lanedb.Outcome{{Seq: id.Seq, Verdict: lanedb.Dead}}), lanedb.ErrFenced)
	changes, err := lanedb.Of(f.Handle()).Leases.Renew(ctx, []lanedb.Lease{old}, time.Minute)
	require.NoError(t, err)
	require.Empty(t, changes)
	require.NoError(t, lanedb.Of(f.Handle()).Leases.Release(ctx, []lanedb.Lease{old}))
	held, _, err = lanedb.Of(f.Handle()).Log.Take(ctx, []lanedb.Taken{{Lease: old, Upto: id.Seq + 100}})
	require.NoError(t, err)
	require.Empty(t, held)
	held, err = lanedb.Of(f.Handle()).Log.Record(ctx, []lanedb.Placed{{Lease: old, Position: lanedb.Position{Upto: id.Seq, Sent: id.Seq}}})
	require.NoError(t, err)
	require.Empty(t, held)

	require.Equal(t, map[string]string{"a1": "PUBLISHING/0", "a2": "PUBLISHING/0"}, f.Statuses())
	_, err = lanedb.Of(f.Handle()).Held.SettleHeld(ctx, old, 0, "default|order|a", []int64{id.Seq})
	require.ErrorIs(t, err, lanedb.ErrFenced)
	require.ErrorIs(t, lanedb.Of(f.Handle()).Held.RetryHeld(ctx, old, 0, lanedb.Outcome{Seq: id.Seq, Wait: time.Second, Error: "no"}), lanedb.ErrFenced)
	require.ErrorIs(t, f.GiveUp(old, 0, id.Seq, "no"), lanedb.ErrFenced)
	_, err = f.release(old, 0, "default|order|a")
	require.ErrorIs(t, err, lanedb.ErrFenced)
}

// A hold that is still open when the lease ends must keep the lane: its successor would load the blocks before they are
// there, and publish what follows a held row. The row lock of the fence does that.
func TestOpenHoldKeepsTheLane(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, nil)
	f.Record("a", "a1")
	rows := f.Fetch()
	lease := f.Leases[rows[0].Lane]
	f.expire()

	tx, err := f.DB.DB.DB.BeginTx(ctx, nil)
	require.NoError(t, err)
	defer tx.Rollback()
	var moved int
	require.NoError(t, tx.QueryRowContext(ctx, f.Text(statement("holdRows")), lease.Owner, lease.Lane, lease.Epoch,
		[]int64{rows[0].Sequence}, []int16{1}, []time.Duration{0}, []string{"no"}, "", []string{""}).Scan(new(int), new(int), &moved, new(int)))
	require.Equal(t, 1, moved)

	taken, err := lanedb.Of(f.Handle()).Leases.Claim(ctx, "successor", 0, 64, time.Minute)
	require.NoError(t, err)
	require.Len(t, taken, 63)
	require.NoError(t, tx.Commit())
	taken, err = lanedb.Of(f.Handle()).Leases.Claim(ctx, "successor", 0, 64, time.Minute)
	require.NoError(t, err)
	require.Len(t, taken, 1)
	blocks, err := lanedb.Of(f.Handle()).Held.Blocks(ctx, []int16{lease.Lane})
	require.NoError(t, err)
	require.Equal(t, []lanedb.Block{{Key: "default|order|a", State: "failed"}}, blocks[lease.Lane].Blocks)
}

// An operator's replay between the owner's look at the blocks and its settle must not end in a held row without a block.
func TestSettleThatMissedAReplayIsFenced(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, nil)
	id := f.Record("a", "a1")
	f.Record("a", "a2")
	rows := f.Fetch()
	lease := f.Leases[rows[0].Lane]
	require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(ctx, lease, []lanedb.Outcome{
		{Seq: rows[0].Sequence, Verdict: lanedb.Dead, Error: "bad"}, {Seq: rows[1].Sequence, Verdict: lanedb.Follower},
	}))
	seen := f.Change(lease.Lane)
	require.NoError(t, f.Dead().Replay(ctx, id, ann))
	_, err := lanedb.Of(f.Handle()).Held.SettleHeld(ctx, lease, seen, rows[1].Key, []int64{rows[1].Sequence})
	require.ErrorIs(t, err, lanedb.ErrFenced)
	queue, err := lanedb.Of(f.Handle()).Held.Queue(ctx, lease.Lane, rows[0].Key, 0)
	require.NoError(t, err)
	require.Len(t, queue, 2)
	require.Zero(t, queue[0].RetryCount, "a replay has all its attempts")
}
