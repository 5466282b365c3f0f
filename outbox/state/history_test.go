package state_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox/state"
)

func types(records []state.Record) (out []string) {
	for _, r := range records {
		out = append(out, r.EventType+" "+r.Status)
	}
	return out
}

func TestEventsByAggregateReadsAllTables(t *testing.T) {
	f := newFixture(t, nil)
	ctx := t.Context()
	f.Record("a", "a1")
	f.Record("b", "b1")
	f.Settle()
	f.Exec("UPDATE outbox_sent SET sent_at = sent_at - interval '72 hours' WHERE event_type = 'a1'")
	f.Record("a", "a2", event.WithOrderingKey("elsewhere")) // another lane
	f.Settle()
	f.Record("a", "a3")
	f.Record("a", "a4")
	f.Kill(map[string]string{"a3": "no"})
	f.Record("a", "a5")
	f.Record("b", "b2")
	f.Record("a", "other tenant", event.WithTenantID("globex"))
	f.Record("a", "other type", event.WithAggregate("invoice", "a", 1))

	all, err := f.State().EventsByAggregate(ctx, "default", "order", "a", 0, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"a1 SENT", "a2 SENT", "a3 DEAD", "a4 NEW", "a5 NEW"}, types(all))
	require.Equal(t, []byte("a1"), all[0].Payload)
	require.Equal(t, "test", all[0].Source)
	require.WithinDuration(t, time.Now().Add(-72*time.Hour), *all[0].SentAt, time.Hour)
	require.Equal(t, "no", *all[2].ErrorMessage)

	var paged []state.Record
	for after := int64(0); ; after = paged[len(paged)-1].Sequence {
		page, err := f.State().EventsByAggregate(ctx, "", "order", "a", after, 2)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), 2)
		if len(page) == 0 {
			break
		}
		paged = append(paged, page...)
	}
	require.Equal(t, all, paged)

	// A newer build has added a column.
	f.Exec(`DO $$ BEGIN EXECUTE 'CREATE OR REPLACE VIEW outbox_messages AS SELECT v.*, 1 AS newer FROM (' ||
		rtrim(pg_get_viewdef('outbox_messages'), ';') || ') v'; END $$`)
	other, err := f.State().EventsByAggregate(ctx, "globex", "order", "a", 0, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"other tenant NEW"}, types(other))
	for _, limit := range []int{0, 1000} {
		f.Exec(`INSERT INTO outbox (id, occurred_at, lane, tenant_id, topic, aggregate_type, aggregate_id, event_type, source, payload)
			SELECT gen_random_uuid(), now(), i % 64, 'default', 'order', 'order', 'long', 't', 'test', '' FROM generate_series(1, 100) i`)
		long, err := f.State().EventsByAggregate(ctx, "default", "order", "long", 0, limit)
		require.NoError(t, err)
		require.Len(t, long, map[int]int{0: 100, 1000: 200}[limit])
	}
}

func TestEventsByAggregateTellsWhatIsWrong(t *testing.T) {
	f := newFixture(t, nil)
	_, err := f.State().EventsByAggregate(t.Context(), "default", "order", "", 0, 0)
	require.ErrorContains(t, err, "outbox: EventsByAggregate: aggregateID is empty")
	for field, c := range map[string][3]string{
		"tenant": {"a\x00b", "order", "a"}, "aggregateType": {"default", "a\x00b", "a"}, "aggregateID": {"default", "order", "a\x00b"},
	} {
		_, err := f.State().EventsByAggregate(t.Context(), c[0], c[1], c[2], 0, 0)
		require.ErrorIs(t, err, event.ErrInvalid)
		require.ErrorContains(t, err, field)
	}
}

// A record of a history has all fields of a Record.
func TestHistorySaysThatATenantIsPaused(t *testing.T) {
	f := newFixture(t, nil)
	f.Record("a", "a1")
	f.Settle()
	f.Record("a", "a2")
	f.Exec("UPDATE outbox_tenant SET paused_at = now(), paused_by = 'ann', pause_reason = '' WHERE tenant_id = 'default'")
	all, err := f.State().EventsByAggregate(t.Context(), "default", "order", "a", 0, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"a1 SENT", "a2 NEW"}, types(all))
	require.Equal(t, []bool{false, true}, []bool{all[0].Paused, all[1].Paused})
}

// The statements of docs/recipes.md, for partitions that exist and for later ones.
func TestIndexOfTheRecipeServesHistories(t *testing.T) {
	f := newFixture(t, nil)
	require.NoError(t, f.Upkeep().EnsurePartitions(t.Context()))
	day := time.Now().UTC().Format("20060102")
	f.Exec("CREATE INDEX outbox_sent_aggregate ON ONLY outbox_sent (tenant_id, aggregate_type, aggregate_id, seq)")
	var children []string
	require.NoError(t, f.DB.NewRaw("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'outbox_sent'::regclass").Scan(t.Context(), &children))
	require.Contains(t, children, "outbox_sent_"+day)
	for _, child := range children {
		f.Exec("CREATE INDEX CONCURRENTLY " + child + "_aggregate ON " + child + " (tenant_id, aggregate_type, aggregate_id, seq)")
		f.Exec("ALTER INDEX outbox_sent_aggregate ATTACH PARTITION " + child + "_aggregate")
	}
	f.Child("2020-01-02")
	require.Equal(t, 1, f.Count("pg_indexes WHERE tablename = 'outbox_sent_20200102' AND schemaname = current_schema()"), "a new partition has it too")
	f.Exec(`INSERT INTO outbox_sent (seq, id, occurred_at, created_at, aggregate_version, schema_version, lane, retry_count, crashes, tenant_id,
		topic, aggregate_type, aggregate_id, event_type, source, content_type, event_metadata, payload, sent_at)
		SELECT i, gen_random_uuid(), now(), now(), 0, 1, 0, 0, 0, 't', 'order', 'order', 'a' || i % 1000, 'e', 's', 'text/plain', '{}', 'x',
			?::timestamptz FROM generate_series(1, 20000) i; ANALYZE outbox_sent`, day+" 12:00:00Z") // also if it has ended meanwhile
	plan := f.ExplainOnce(state.EventsByAggregate(f.DB.DB), "t", "order", "a7", 0, 100)
	require.Contains(t, plan, "outbox_sent_"+day+"_aggregate")
	require.NotContains(t, plan, "Seq Scan on outbox_sent_"+day)
}
