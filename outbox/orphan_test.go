package outbox_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/outbox"
)

// An owner that does not know yet that a block is gone, or is being drained with nothing behind it, holds the next row of
// the key as a follower. Nobody would ever make it due; so it is the head.
func TestFollowerWithNobodyInFrontIsTheHead(t *testing.T) {
	for name, before := range map[string]func(f *fixture, head string){
		"the block was lifted": func(f *fixture, head string) {
			require.NoError(f.t, f.Discard(f.t.Context(), head, ann))
			_, err := f.db.Exec("DELETE FROM outbox_block")
			require.NoError(f.t, err)
		},
		"the head was discarded": func(f *fixture, head string) {
			require.NoError(f.t, f.Discard(f.t.Context(), head, ann))
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			f := newFixture(t, nil)
			head := f.add("a", "a1")
			row := f.fetch()[0]
			lease := f.leases[row.Lane]
			require.NoError(t, f.Hold(ctx, lease, []outbox.Outcome{{Seq: row.Sequence, Verdict: outbox.Dead, Error: "bad"}}))
			before(f, head)
			f.add("a", "a2")
			f.add("a", "a3")
			rows := f.fetch()
			require.NoError(t, f.Hold(ctx, lease, []outbox.Outcome{
				{Seq: rows[0].Sequence, Verdict: outbox.Follower}, {Seq: rows[1].Sequence, Verdict: outbox.Follower},
			}))
			due, err := f.Due(ctx, []int16{lease.Lane})
			require.NoError(t, err)
			require.Len(t, due, 1, "a2 and not a3")
			require.Equal(t, "a2", due[0].Type)
			blocks, err := f.Blocks(ctx, []int16{lease.Lane})
			require.NoError(t, err)
			require.Len(t, blocks[lease.Lane].Blocks, 1, "what is held has a block")
			lifted, err := f.SettleHeld(ctx, lease, f.change(lease.Lane), row.Key, []int64{rows[0].Sequence, rows[1].Sequence})
			require.NoError(t, err)
			require.True(t, lifted)
		})
	}
}

// A block whose first held row waits for a head that is gone is told, and mended by settling nothing.
func TestStalledBlockIsMended(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, nil)
	f.add("a", "a1")
	f.add("a", "a2")
	rows := f.fetch()
	lease := f.leases[rows[0].Lane]
	require.NoError(t, f.Hold(ctx, lease, []outbox.Outcome{
		{Seq: rows[0].Sequence, Verdict: outbox.Refused, Error: "no"}, {Seq: rows[1].Sequence, Verdict: outbox.Follower},
	}))
	_, err := f.db.Exec("DELETE FROM outbox_held WHERE seq = ?", rows[0].Sequence)
	require.NoError(t, err)
	blocks, err := f.Blocks(ctx, []int16{lease.Lane})
	require.NoError(t, err)
	require.True(t, blocks[lease.Lane].Blocks[0].Stalled)
	_, err = f.SettleHeld(ctx, lease, f.change(lease.Lane), rows[0].Key, []int64{})
	require.NoError(t, err)
	due, err := f.Due(ctx, []int16{lease.Lane})
	require.NoError(t, err)
	require.Len(t, due, 1)
}
