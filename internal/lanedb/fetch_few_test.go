package lanedb_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/outbox"
)

// FetchFew brings the rows of Fetch, notes what Take notes, and returns what Take returns.
func TestFetchFewIsFetchAndTake(t *testing.T) {
	for name, cfg := range map[string]*outbox.Config{"binary": {}, "text": {Pooler: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, cfg)
			for n := range 40 {
				f.Record(fmt.Sprint("k", n%3), fmt.Sprint("e", n))
			}
			for n := range lanedb.FewRows + 5 {
				f.Record("many", fmt.Sprint("m", n))
			}
			var lost int16
			require.NoError(t, f.DB.NewRaw("SELECT lane FROM outbox WHERE event_type = 'e0'").Scan(t.Context(), &lost))
			var cursors []lanedb.Cursor
			for _, l := range f.Leases {
				if l.Lane == lost {
					l.Epoch--
				}
				cursors = append(cursors, lanedb.Cursor{Lease: l, Quota: lanedb.MaxFetch, Taken: 7})
			}
			rows, held, mark, err := lanedb.Of(f.Handle()).Log.FetchFew(t.Context(), cursors, 0)
			require.NoError(t, err)
			for i := range cursors {
				cursors[i].Quota = lanedb.FewRows
			}
			same, err := lanedb.Of(f.Handle()).Log.Fetch(t.Context(), cursors, 0)
			require.NoError(t, err)
			require.Equal(t, same, rows)

			upto := map[int16]int64{}
			for _, r := range rows {
				upto[r.Lane] = max(upto[r.Lane], r.Sequence)
			}
			require.False(t, held[lost])
			delete(upto, lost)
			require.Len(t, held, len(upto))
			var noted []struct {
				Lane int16
				Upto int64
			}
			require.NoError(t, f.DB.NewRaw("SELECT DISTINCT ON (lane) lane, upto FROM outbox_claim ORDER BY lane, n DESC").Scan(t.Context(), &noted))
			require.Len(t, noted, len(upto))
			for _, n := range noted {
				require.True(t, held[n.Lane])
				require.Equal(t, upto[n.Lane], n.Upto)
			}
			now, err := lanedb.Of(f.Handle()).Log.ReadWatermark(t.Context())
			require.NoError(t, err)
			require.Equal(t, now.Seq, mark.Seq)
			require.Less(t, mark.XID, now.XID)
			require.Positive(t, mark.Xmin)
		})
	}
}

// A fetch of empty lanes takes no transaction id and records no claim.
func TestFetchFewOfEmptyLanesWritesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	before, err := lanedb.Of(f.Handle()).Log.ReadWatermark(t.Context())
	require.NoError(t, err)
	for _, l := range f.Leases {
		l.Incarnation = before.Incarnation
		rows, held, _, err := lanedb.Of(f.Handle()).Log.FetchFew(t.Context(), []lanedb.Cursor{{Lease: l, Quota: 10, Taken: 5}}, 0)
		require.NoError(t, err)
		require.Empty(t, rows)
		require.Empty(t, held)
	}
	require.Zero(t, f.Count("outbox_claim"))
}
