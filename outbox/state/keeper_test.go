package state_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox/state"
)

// What came between two readings of one keeper is counted once, and what came before the first reading, or before that of another process, is not.
func TestKeeperCountsBetweenItsReadings(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	history := func() operator.Figures {
		t.Helper()
		h, err := f.State().History(t.Context(), time.Hour)
		require.NoError(t, err)
		sum := operator.Figures{}
		for _, m := range h.Figures { // a reading may be of the next minute
			sum.Came, sum.Went, sum.Counted, sum.Waiting = sum.Came+m.Came, sum.Went+m.Went, sum.Counted+m.Counted, max(sum.Waiting, m.Waiting)
			require.Equal(t, int64(operator.Unknown), m.Parked)
		}
		return sum
	}
	first, second := state.NewKeeper(f.State()), state.NewKeeper(f.State())
	f.Record("a", "before")
	_, err := first.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, operator.Figures{Waiting: 1}, history())
	f.Record("b", "between")
	f.Record("c", "between")
	st, err := first.Read(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, st.New)
	counted := history()
	require.Equal(t, []int64{2, 0, 3}, []int64{counted.Came, counted.Went, counted.Waiting})
	require.Positive(t, counted.Counted)
	_, err = second.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, counted, history(), "the second one has not read before")
}

// A keeper that has not read for longer than its lease may have been replaced meanwhile.
func TestKeeperCountsNothingOverAPause(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	k := state.NewKeeper(f.State())
	_, err := k.Read(t.Context())
	require.NoError(t, err)
	k.Age(time.Minute)
	f.Record("a", "in the pause")
	_, err = k.Read(t.Context())
	require.NoError(t, err)
	h, err := f.State().History(t.Context(), time.Hour)
	require.NoError(t, err)
	for _, m := range h.Figures {
		require.Zero(t, m.Counted)
	}
}
