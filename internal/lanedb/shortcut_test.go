package lanedb_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/outbox"
)

// Fetches and scans begin behind the rows that have left only while the transactions are open that may still bring rows in front of them.
func TestShortcutWhileTransactionsAreOpen(t *testing.T) {
	for name, cfg := range map[string]*outbox.Config{"binary": {}, "text": {Pooler: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, cfg)
			f.Record("b", "b1") // the first event of a tenant makes the tenant's other events wait
			long, err := f.DB.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			t.Cleanup(func() { _ = long.Rollback() })
			_, err = f.Add(t.Context(), long, "order", []byte("slow"), event.WithAggregate("order", "a", 1), event.WithType("slow"))
			require.NoError(t, err)
			mark, err := lanedb.Of(f.Handle()).Log.ReadWatermark(t.Context())
			require.NoError(t, err)
			var xid int64
			require.NoError(t, long.NewRaw("SELECT pg_current_xact_id()::text::bigint").Scan(t.Context(), &xid))
			require.Contains(t, mark.Running, xid)
			require.Greater(t, mark.Xmax, xid)
			f.Record("b", "b2")

			log := lanedb.Of(f.Handle()).Log
			cursors := func(while ...int64) (all []lanedb.Cursor) {
				for _, l := range f.Leases {
					l.Incarnation = mark.Incarnation
					all = append(all, lanedb.Cursor{Lease: l, Quota: 100, After: mark.Seq, While: while})
				}
				return all
			}
			scanned := func(while ...int64) []int {
				t.Helper()
				tenants, err := log.Scan(t.Context(), cursors(while...), lanedb.Filter{Tenants: []string{"big"}})
				require.NoError(t, err)
				topics, err := log.Scan(t.Context(), cursors(while...), lanedb.Filter{Topics: []string{"down"}})
				require.NoError(t, err)
				far, err := log.ScanFar(t.Context(), cursors(while...), lanedb.Filter{})
				require.NoError(t, err)
				return []int{len(tenants), len(topics), len(far)}
			}
			fetch := func(while ...int64) (types []string) {
				t.Helper()
				rows, err := log.Fetch(t.Context(), cursors(while...), 0)
				require.NoError(t, err)
				for i := range rows {
					types = append(types, rows[i].Type)
				}
				return types
			}
			require.ElementsMatch(t, []string{"b1", "b2"}, fetch(), "no transaction is named")
			require.Equal(t, []string{"b2"}, fetch(xid))
			require.Equal(t, []int{1, 1, 1}, scanned(xid))
			require.Empty(t, fetch(xid, mark.XID), "one of them has ended")
			require.Equal(t, []int{0, 0, 0}, scanned(xid, mark.XID), "one of them has ended")
			require.NoError(t, long.Commit())
			require.Empty(t, fetch(xid))
			require.Equal(t, []int{0, 0, 0}, scanned(xid))
			require.Equal(t, []int{1, 1, 1}, scanned(), "a scan may begin there at any time, if it names no transaction")
			require.ElementsMatch(t, []string{"slow", "b1", "b2"}, fetch())
		})
	}
}
