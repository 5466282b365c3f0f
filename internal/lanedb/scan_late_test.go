package lanedb_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/outbox"
)

func TestLateScanFindsWhatIsUnsentUpToAnEnd(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]*outbox.Config{"binary": {}, "text": {Pooler: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, cfg)
			for _, r := range []struct{ lane, seq int }{{1, 10}, {1, 20}, {1, 30}, {1, 40}, {2, 15}, {2, 25}, {2, 35}, {3, 22}} {
				f.Exec(`INSERT INTO outbox (seq, id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
					VALUES (?, gen_random_uuid(), now(), ?, 'default', 'order', 't', 'test', 'x')`, r.seq, r.lane)
			}
			scan := func(after, upto int64, incarnation string, lanes ...int16) []outboxdb.RowID {
				ids, all, err := lanedb.Of(f.Handle()).Log.ScanLate(t.Context(), lanes, after, upto, incarnation)
				require.NoError(t, err)
				require.True(t, all)
				return ids
			}
			require.Equal(t, []outboxdb.RowID{{Lane: 1, Seq: 20}, {Lane: 1, Seq: 30}, {Lane: 2, Seq: 15}, {Lane: 2, Seq: 25}}, scan(10, 30, "", 2, 1))
			require.Empty(t, scan(0, 21, "", 3))
			require.Empty(t, scan(0, 100, "another", 1, 2, 3), "the positions are those of a server that has crashed")
		})
	}
}

// More than a few batches of rows are found as fast by fetches.
func TestLateScanGivesUpOnManyRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	insert := `INSERT INTO outbox (seq, id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
		SELECT n, gen_random_uuid(), now(), 1, 'default', 'order', 't', 'test', 'x' FROM generate_series(?::bigint, ?) n`
	f.Exec(insert, 1, lanedb.MaxLate)
	ids, all, err := lanedb.Of(f.Handle()).Log.ScanLate(t.Context(), []int16{1}, 0, 1_000_000, "")
	require.NoError(t, err)
	require.True(t, all)
	require.Len(t, ids, lanedb.MaxLate)
	f.Exec(insert, lanedb.MaxLate+1, lanedb.MaxLate+1)
	ids, all, err = lanedb.Of(f.Handle()).Log.ScanLate(t.Context(), []int16{1}, 0, 1_000_000, "")
	require.NoError(t, err)
	require.False(t, all)
	require.Empty(t, ids)
}

// It reads each page once, whatever the planner believes of the table, and finds the pages through the index.
func TestPlanOfTheLateScan(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	for _, known := range []bool{false, true} {
		if known {
			f.Portions(20_000, `INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
				SELECT gen_random_uuid(), now(), i % 64, 'default', 'order', 't', 'test', 'x' FROM generate_series(1, ?) i`)
			f.Exec("ANALYZE outbox")
		}
		err := f.DB.RunInTx(t.Context(), nil, func(_ context.Context, tx bun.Tx) error {
			_, err := tx.Tx.ExecContext(t.Context(), outboxdb.SwitchOff, lanedb.PagesOnce())
			require.NoError(t, err)
			_, err = tx.Exec("PREPARE late AS " + f.Text(statement("lookLate")))
			require.NoError(t, err)
			defer func() { _, _ = tx.Exec("DEALLOCATE late") }()
			var plan []string
			err = tx.NewRaw(`EXPLAIN EXECUTE late ('{1,2,3}', 0, 9000, '')`).Scan(t.Context(), &plan)
			require.NoError(t, err)
			require.Regexp(t, `Bitmap Heap Scan on outbox_20\d+`, strings.Join(plan, "\n"))
			require.NotRegexp(t, "Index (Only )?Scan using outbox_(20|default)|Seq Scan on outbox_(20|default)|JIT", strings.Join(plan, "\n"))
			return nil
		})
		require.NoError(t, err)
	}
}
