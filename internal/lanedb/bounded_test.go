package lanedb_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
)

// A fetch brings no more bytes than its limit, whatever the number of rows. Of each lane it brings the first rows, without a gap.
func TestFetchIsBoundedInBytes(t *testing.T) {
	for _, pooler := range []bool{false, true} {
		t.Run(fmt.Sprintf("pooler %t", pooler), func(t *testing.T) {
			f := newFixture(t, &outbox.Config{Pooler: pooler})
			const each, bound = 1000, 10 * 1000
			var cursors []lanedb.Cursor
			for _, l := range f.Leases {
				cursors = append(cursors, lanedb.Cursor{Lease: l, Quota: 100})
			}
			for i := range 200 {
				_, err := pgtest.Add(t.Context(), f.DB.DB, f, "order", bytes.Repeat([]byte{byte(i)}, each),
					event.WithAggregate("order", fmt.Sprint("k", i%20), 1))
				require.NoError(t, err)
			}
			for left := 200; left > 0; {
				rows, err := lanedb.Of(f.Handle()).Log.Fetch(t.Context(), cursors, bound)
				require.NoError(t, err)
				total, next := 0, map[int16]int64{}
				var sent []outboxdb.RowID
				var leases []lanedb.Lease
				for _, r := range rows {
					require.Greater(t, r.Sequence, next[r.Lane])
					next[r.Lane] = r.Sequence
					if r.Cut {
						next[r.Lane] = 1 << 62 // nothing comes after it
						require.Nil(t, r.Payload)
						continue
					}
					total += len(r.Payload)
					require.Len(t, r.Payload, each)
					require.Equal(t, bytes.Repeat(r.Payload[:1], each), r.Payload)
					sent, leases = append(sent, outboxdb.RowID{Lane: r.Lane, Seq: r.Sequence}), append(leases, f.Leases[r.Lane])
				}
				require.NotEmpty(t, sent)
				require.LessOrEqual(t, total, bound)
				_, err = lanedb.Of(f.Handle()).Moves.Settle(t.Context(), leases, sent)
				require.NoError(t, err)
				left -= len(sent)
			}
			require.Empty(t, f.Fetch())
		})
	}
}

// Rows of all lanes come in turn, also if the first lanes alone could fill each fetch. A row larger than the bound comes alone.
func TestLargeRowsOfAllLanesHaveTheirTurn(t *testing.T) {
	f := newFixture(t, nil)
	for i := range 400 {
		_, err := pgtest.Add(t.Context(), f.DB.DB, f, "order", make([]byte, 500), event.WithAggregate("order", fmt.Sprint("k", i), 1))
		require.NoError(t, err)
	}
	var cursors []lanedb.Cursor
	for _, l := range f.Leases {
		cursors = append(cursors, lanedb.Cursor{Lease: l, Quota: 100})
	}
	seen := map[int16]bool{}
	for range 64 { // nothing is settled: a lane that is not served at first would never be
		rows, err := lanedb.Of(f.Handle()).Log.Fetch(t.Context(), cursors, 64)
		require.NoError(t, err)
		whole := 0
		for _, r := range rows {
			if !r.Cut {
				seen[r.Lane] = true
				whole++
			}
		}
		require.Equal(t, 1, whole)
	}
	require.Len(t, seen, 64)
}
