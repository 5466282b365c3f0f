package lanedb_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
)

// An owner that does not know yet that a block is gone, or is being drained with nothing behind it, holds the next row of
// the key as a follower. Nobody would ever make it due; so it is the head.
func TestFollowerWithNobodyInFrontIsTheHead(t *testing.T) {
	for name, before := range map[string]func(f *fixture, head string){
		"the block was lifted": func(f *fixture, head string) {
			require.NoError(f.T, f.Dead().Discard(f.T.Context(), head, ann))
			_, err := f.DB.Exec("DELETE FROM outbox_block")
			require.NoError(f.T, err)
		},
		"the head was discarded": func(f *fixture, head string) {
			require.NoError(f.T, f.Dead().Discard(f.T.Context(), head, ann))
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			f := newFixture(t, nil)
			head := f.Record("a", "a1")
			row := f.Fetch()[0]
			lease := f.Leases[row.Lane]
			require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(ctx, lease, []lanedb.Outcome{{Seq: row.Sequence, Verdict: lanedb.Dead, Error: "bad"}}))
			before(f, head)
			f.Record("a", "a2")
			f.Record("a", "a3")
			rows := f.Fetch()
			require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(ctx, lease, []lanedb.Outcome{
				{Seq: rows[0].Sequence, Verdict: lanedb.Follower}, {Seq: rows[1].Sequence, Verdict: lanedb.Follower},
			}))
			due, _, err := lanedb.Of(f.Handle()).Held.Due(ctx, []int16{lease.Lane}, 0)
			require.NoError(t, err)
			require.Len(t, due, 1, "a2 and not a3")
			require.Equal(t, "a2", due[0].Type)
			blocks, err := lanedb.Of(f.Handle()).Held.Blocks(ctx, []int16{lease.Lane})
			require.NoError(t, err)
			require.Len(t, blocks[lease.Lane].Blocks, 1, "what is held has a block")
			lifted, err := lanedb.Of(f.Handle()).Held.SettleHeld(ctx, lease, f.Change(lease.Lane), row.Key, []int64{rows[0].Sequence, rows[1].Sequence})
			require.NoError(t, err)
			require.True(t, lifted)
		})
	}
}

// A block whose first held row waits for a head that is gone is reported, and mended.
func TestStalledBlockIsMended(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, nil)
	f.Record("a", "a1")
	f.Record("a", "a2")
	rows := f.Fetch()
	lease := f.Leases[rows[0].Lane]
	require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(ctx, lease, []lanedb.Outcome{
		{Seq: rows[0].Sequence, Verdict: lanedb.Refused, Error: "no"}, {Seq: rows[1].Sequence, Verdict: lanedb.Follower},
	}))
	_, err := f.DB.Exec("DELETE FROM outbox_held WHERE seq = ?", rows[0].Sequence)
	require.NoError(t, err)
	blocks, err := lanedb.Of(f.Handle()).Held.Blocks(ctx, []int16{lease.Lane})
	require.NoError(t, err)
	require.True(t, blocks[lease.Lane].Blocks[0].Stalled)
	free, err := f.release(lease, f.Change(lease.Lane), rows[0].Key)
	require.NoError(t, err)
	require.Empty(t, free)
	due, _, err := lanedb.Of(f.Handle()).Held.Due(ctx, []int16{lease.Lane}, 0)
	require.NoError(t, err)
	require.Len(t, due, 1)
}

// That head does not leave before its time either.
func TestFollowerWithNobodyInFrontWaitsForItsTime(t *testing.T) {
	f := newFixture(t, nil)
	inOrder := event.WithOrderingKey("a")
	head := f.Record("a", "a1", inOrder)
	f.Kill(map[string]string{"a1": "bad"})
	require.NoError(t, f.Dead().Discard(t.Context(), head, ann))
	tomorrow := time.Now().Add(24 * time.Hour)
	f.Record("a", "a2", inOrder, event.WithNotBefore(tomorrow))
	row := f.Fetch()[0]
	require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(t.Context(), f.Leases[row.Lane], []lanedb.Outcome{{Seq: row.Sequence, Verdict: lanedb.Follower}}))
	require.Equal(t, 1, f.Count("outbox_held WHERE retry_after = not_before"))
}

// Only a row that is in front is waited for. A row that is behind would be waited for by both of them.
func TestFollowerDoesNotWaitForALaterRow(t *testing.T) {
	f := newFixture(t, nil)
	inOrder := event.WithOrderingKey("a")
	f.Record("a", "a1", inOrder)
	f.Record("a", "a2", inOrder, event.WithNotBefore(time.Now().Add(24*time.Hour)))
	rows := f.Fetch()
	lease := f.Leases[rows[0].Lane]
	require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(t.Context(), lease, []lanedb.Outcome{{Seq: rows[1].Sequence, Verdict: lanedb.Delayed}}))
	require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(t.Context(), lease, []lanedb.Outcome{{Seq: rows[0].Sequence, Verdict: lanedb.Follower}}))
	require.Equal(t, []string{"a1"}, f.Due())
}

// An owner that waits for the lane while an operator frees the key sees afterwards what the operator did: the row is the head.
func TestHoldThatWaitedForAnOperatorSeesWhatChanged(t *testing.T) {
	f := newFixture(t, nil)
	letter := f.Record("a", "a1")
	f.Record("a", "a2")
	rows := f.Fetch()
	lease := f.Leases[rows[0].Lane]
	require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(t.Context(), lease, []lanedb.Outcome{{Seq: rows[0].Sequence, Verdict: lanedb.Dead, Error: "bad"}}))

	tx, err := f.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer tx.Rollback()
	_, err = tx.Exec("SELECT FROM outbox_dead FOR UPDATE") // the operator has the lane, and waits for the letter
	require.NoError(t, err)
	discarded, held := make(chan error, 1), make(chan error, 1)
	go func() { discarded <- f.Dead().Discard(t.Context(), letter, ann) }()
	f.AwaitLocks("outbox_lane", 1, "the operator has the lane")
	go func() {
		held <- lanedb.Of(f.Handle()).Moves.Hold(t.Context(), lease, []lanedb.Outcome{{Seq: rows[1].Sequence, Verdict: lanedb.Follower}})
	}()
	f.AwaitLocks("outbox_lane", 2, "the owner waits for the lane")
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-discarded)
	require.NoError(t, <-held)
	require.Equal(t, []string{"a2"}, f.Due())
	require.Empty(t, f.Disorder())
}

// A row that was refused or must wait has no time of its own while an earlier row of its key is held: an operator has
// just replayed that one. Due before its turn, the row would be looked at in vain again and again.
func TestRowBehindAReplayedOneWaitsForIt(t *testing.T) {
	for name, verdict := range map[string]lanedb.Verdict{"refused": lanedb.Refused, "delayed": lanedb.Delayed} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, nil)
			head := f.Record("a", "a1")
			f.Kill(map[string]string{"a1": "bad"})
			f.Exec("DELETE FROM outbox_block") // as on a topic whose keys go on after a dead letter
			f.Record("a", "a2")
			row := f.Fetch()[0]
			require.NoError(t, f.Dead().Replay(t.Context(), head, ann))
			require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(t.Context(), f.Leases[row.Lane], []lanedb.Outcome{{Seq: row.Sequence, Verdict: verdict}}))
			require.Equal(t, []string{"a1"}, f.Due())
		})
	}
}

// The block of a dead letter names that letter, whatever is held beside it: discarding it frees the key.
func TestBlockNamesItsDeadLetter(t *testing.T) {
	f := newFixture(t, nil)
	f.Record("a", "a1")
	letter := f.Record("a", "a2")
	rows := f.Fetch()
	require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(t.Context(), f.Leases[rows[0].Lane], []lanedb.Outcome{
		{Seq: rows[0].Sequence, Verdict: lanedb.Refused, Error: "not now"}, {Seq: rows[1].Sequence, Verdict: lanedb.Dead, Error: "bad"},
	}))
	require.Equal(t, 1, f.Count("outbox_block WHERE head_seq = ?", rows[1].Sequence))
	require.NoError(t, f.Dead().Discard(t.Context(), letter, ann))
	require.Zero(t, f.Count("outbox_block WHERE state = 'dead'"))
}
