package lanedb_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// Held rows that are due come with no more bytes of payload than asked for, the oldest first, and with one row at least. The
// queue behind one of them does so too.
func TestDueRowsAreBoundedInBytes(t *testing.T) {
	f := newFixture(t, nil)
	const rows, each = 5, 1000
	for i := range rows {
		for range 2 { // the second one follows the first
			_, err := pgtest.Add(t.Context(), f.DB.DB, f, "order", bytes.Repeat([]byte("x"), each), event.WithAggregate("order", fmt.Sprint("k", i), 1))
			require.NoError(t, err)
		}
	}
	var ids []outboxdb.RowID
	var lanes []int16
	outcomes := map[int16][]lanedb.Outcome{}
	seen := map[string]bool{}
	for _, r := range f.Fetch() {
		o := lanedb.Outcome{Seq: r.Sequence, Verdict: lanedb.Refused, Wait: -time.Minute, Error: "no"}
		if seen[r.Key] {
			o.Verdict = lanedb.Follower
		} else {
			ids, lanes = append(ids, outboxdb.RowID{Lane: r.Lane, Seq: r.Sequence}), append(lanes, r.Lane)
		}
		seen[r.Key] = true
		outcomes[r.Lane] = append(outcomes[r.Lane], o)
	}
	for lane, o := range outcomes {
		require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(t.Context(), f.Leases[lane], o))
	}
	for bound, want := range map[int64]int{0: rows, 1: 1, each: 1, 2*each - 1: 1, 2 * each: 2, rows * each: rows} {
		due, all, err := lanedb.Of(f.Handle()).Held.Due(t.Context(), lanes, bound)
		require.NoError(t, err)
		require.Equal(t, want == rows, all, bound)
		oldest, _, err := lanedb.Of(f.Handle()).Held.Due(t.Context(), lanes, 0)
		require.NoError(t, err)
		require.Equal(t, heldSequences(oldest[:want]), heldSequences(due))
		picked, err := lanedb.Of(f.Handle()).Held.FetchDueRows(t.Context(), ids, bound)
		require.NoError(t, err)
		require.Equal(t, heldSequences(due), heldSequences(picked))
		queue, err := lanedb.Of(f.Handle()).Held.Queue(t.Context(), due[0].Lane, due[0].Key, bound)
		require.NoError(t, err)
		require.Len(t, queue, min(want, 2), bound)
	}
}

func heldSequences(due []lanedb.DueRow) (seqs []int64) {
	for _, h := range due {
		seqs = append(seqs, h.Sequence)
	}
	return seqs
}

// A row that becomes due after the look for due rows, and before the question when the next one is due, is not forgotten.
func TestNextDueCountsWhatCameSinceTheLastLook(t *testing.T) {
	f := newFixture(t, nil)
	f.Record("key", "e")
	row := f.Fetch()[0]
	next := func(after time.Time) lanedb.Upcoming {
		t.Helper()
		next, err := lanedb.Of(f.Handle()).Held.NextDue(t.Context(), []int16{row.Lane}, after)
		require.NoError(t, err)
		return next
	}
	require.False(t, next(time.Time{}).Some, "nothing is held")

	lease := f.Leases[row.Lane]
	outcomes := []lanedb.Outcome{{Seq: row.Sequence, Verdict: lanedb.Refused, Wait: time.Hour, Error: "no"}}
	require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(t.Context(), lease, outcomes))
	first := next(time.Time{})
	require.True(t, first.Some)
	require.InDelta(t, time.Hour, first.In, float64(10*time.Minute))

	require.NoError(t, lanedb.Of(f.Handle()).Held.RetryHeld(t.Context(), lease, 0, lanedb.Outcome{Seq: row.Sequence, Wait: -time.Minute, Error: "no"}))
	require.False(t, next(first.Asked).Some, "it was due before the last question")
	due := next(first.Asked.Add(-time.Hour))
	require.True(t, due.Some)
	require.LessOrEqual(t, due.In, time.Duration(0))
}
