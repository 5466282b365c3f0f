package lanedb_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// While a transaction is open, what was deleted stays in the indexes. What happens each few seconds begins behind that: a walk over all of it
// would keep the lanes locked, or a core busy, for longer and longer.
func TestNothingWalksOverWhatWasDeleted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	require.Regexp(t, `Index Cond: \(\(lane = mine_\d.lane\) AND \(n >= mine_\d.taken_from\) AND \(n < mine_\d.latest\)\)`, f.Explain(statement("renew")))
	last := `Scan Backward using outbox_20\d+_lane_seq_idx on outbox_20\d+ o_\d+ .*\n +Index Cond: \(\(lane = \$\d+\) AND \(seq > \$\d+\)\)`
	require.Regexp(t, last, f.Explain(fmt.Sprintf(outboxdb.Statistics, 200)))
}

// A renewal deletes what was taken before the last batch, and begins where the renewal before ended.
func TestRenewalForgetsWhatWasTaken(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.Record("a", "a1")
	rows := f.Fetch()
	lane := rows[0].Lane
	entries := func() (upto []int64) {
		require.NoError(t, f.DB.NewRaw("SELECT upto FROM outbox_claim WHERE lane = ? ORDER BY n", lane).Scan(t.Context(), &upto))
		return upto
	}
	take := func(upto int64) {
		_, _, err := lanedb.Of(f.Handle()).Log.Take(t.Context(), []lanedb.Taken{{Lease: f.Leases[lane], Upto: upto}})
		require.NoError(t, err)
	}
	renew := func() {
		changes, err := lanedb.Of(f.Handle()).Leases.Renew(t.Context(), slices.Collect(maps.Values(f.Leases)), time.Minute)
		require.NoError(t, err)
		require.Len(t, changes, 64)
	}
	take(101)
	take(102)
	require.Len(t, entries(), 3)
	renew()
	require.Equal(t, []int64{102}, entries())
	renew()
	require.Equal(t, []int64{102}, entries(), "the last one counts if the projector vanishes")
	f.Exec("INSERT INTO outbox_claim (n, lane, upto) VALUES (0, ?, 7)", lane)
	take(103)
	renew()
	require.Equal(t, []int64{7, 103}, entries())
}
