package outbox_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
)

// An event is found wherever it has got, whether or not its number is known.
func TestFindsAnEventWhereverItIs(t *testing.T) {
	f := newFixture(t, nil)
	_, err := f.DB.Exec("SELECT outbox_make_partition((clock_timestamp() AT TIME ZONE 'UTC')::date)")
	require.NoError(t, err)
	move := func(to, more string) string {
		return "WITH row AS (DELETE FROM outbox RETURNING *) INSERT INTO " + to + " SELECT *" + more + " FROM row"
	}
	for _, c := range []struct{ name, move string }{
		{"waiting", "SELECT 1"},
		{"held", move("outbox_held", ", 'infinity'")},
		{"dead", move("outbox_dead", "")},
		{"published", move("outbox_sent", ", clock_timestamp()")},
		{"published on a day without a table", move("outbox_sent", ", clock_timestamp() - interval '3 years'")},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := f.Record("k", "e")
			var seq int64
			require.NoError(t, f.DB.NewRaw("SELECT seq FROM outbox WHERE id = ?", id).Scan(t.Context(), &seq))
			_, err := f.DB.Exec(c.move)
			require.NoError(t, err)
			for _, known := range []int64{0, seq} {
				found, err := f.Find(t.Context(), f.DB.DB, []event.Envelope{{ID: id, Sequence: known}})
				require.NoError(t, err)
				require.True(t, found, "sequence %d", known)
				found, err = f.Find(t.Context(), f.DB.DB, []event.Envelope{{ID: newID(t), Sequence: known}})
				require.NoError(t, err)
				require.False(t, found, "another event")
			}
			_, err = f.DB.Exec("DELETE FROM outbox")
			require.NoError(t, err)
		})
	}
}

// A unit asks while a request waits for it, and the tables may be long.
func TestFindReadsNoWholeTable(t *testing.T) {
	f := newFixture(t, nil)
	_, err := f.DB.Exec("SELECT outbox_make_partition((clock_timestamp() AT TIME ZONE 'UTC')::date)")
	require.NoError(t, err)
	f.Portions(100_000, `INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
		SELECT gen_random_uuid(), now(), i % 64, 'default', 'order', 't', 'test', 'x' FROM generate_series(1, ?) i`)
	_, err = f.DB.Exec(`INSERT INTO outbox_held SELECT *, 'infinity' FROM outbox LIMIT 50000;
		INSERT INTO outbox_sent SELECT *, clock_timestamp() FROM outbox;
		ANALYZE outbox; ANALYZE outbox_held; ANALYZE outbox_sent`)
	require.NoError(t, err)
	statement, err := f.Finding(t.Context(), f.DB.DB)
	require.NoError(t, err)
	plan := f.Explain(statement)
	require.NotContains(t, plan, "Seq Scan on outbox o", plan)
	require.NotContains(t, plan, "Seq Scan on outbox_held", plan)
	require.NotContains(t, plan, "Seq Scan on outbox_sent_2", plan)
	require.Contains(t, plan, "Tid Range Scan on outbox_sent_2", plan)
}
