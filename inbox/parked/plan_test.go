package parked_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/uow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Whatever an operator asks for among very many, no table is read from end to end.
func TestOperatorsReadByIndexes(t *testing.T) {
	db := pgtest.Migrated(t, pgtest.Inbox)
	for _, statement := range []string{
		`INSERT INTO inbox_parked (consumer, key_lock, message_key, tenant_id, source, message_id, event_type, topic, content_type, payload)
			SELECT 'c' || n % 50, n / 3, gen_random_uuid(), 't' || n % 50, 'shop', n, 'e', 'o', '', '' FROM generate_series(1, 30000) n`,
		`INSERT INTO inbox_key (consumer, key_lock, tenant_id, state, due_at)
			SELECT DISTINCT consumer, key_lock, tenant_id, 'WAITING', now() FROM inbox_parked`,
		"VACUUM ANALYZE inbox_parked", "VACUUM ANALYZE inbox_key",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	messages := inbox.New(uow.New(db.DB, nil), nil).Parked()
	page, err := messages.List(t.Context(), parked.Filter{}, nil, 10)
	require.NoError(t, err)
	for _, filter := range []parked.Filter{{}, {Consumer: "c7"}, {FirstOnly: true}} {
		for _, after := range []*parked.Message{nil, &page[9]} {
			plan, err := messages.Explain(t.Context(), filter, after, 100)
			require.NoError(t, err)
			require.NotContains(t, plan, "Seq Scan on inbox", "%+v", filter)
		}
	}
}

// The messages behind a dead letter are found by its key, among 10,000 keys that wait for a decision.
func TestMessagesBehindALetterAreReadByTheirKey(t *testing.T) {
	db := pgtest.Migrated(t, pgtest.Inbox)
	for _, statement := range []string{
		`INSERT INTO inbox_dead (message_key, consumer, tenant_id, source, message_id, event_type, topic, ordering_key, content_type, payload,
				error_message, key_lock, seq, holds, died_at, fingerprint)
			SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 'billing', 't', 'shop', n, 'e', 'o', 'k' || n, '', '', 'no', n, n, n % 2 = 0,
				now(), 'f' FROM generate_series(1, 10000) n`,
		`INSERT INTO inbox_parked (consumer, key_lock, message_key, tenant_id, source, message_id, event_type, topic, content_type, payload)
			SELECT 'billing', 1 + n % 10000, gen_random_uuid(), 't', 'shop', n, 'e' || n, 'o', '', '' FROM generate_series(0, 19999) n ORDER BY n`,
		`INSERT INTO inbox_key (consumer, key_lock, tenant_id, state, due_at) SELECT 'billing', n, 't', 'DEAD', 'infinity' FROM generate_series(1, 10000) n`,
		"VACUUM ANALYZE inbox_dead", "VACUUM ANALYZE inbox_parked", "VACUUM ANALYZE inbox_key",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	messages := inbox.New(uow.New(db.DB, nil), nil).Parked()
	behind := func(n string) parked.Filter {
		return parked.Filter{Behind: operator.MessageRef{
			MessageKey: "00000000-0000-7000-8000-0000000000" + n, Consumer: "billing", TenantID: "t", Source: "shop",
		}}
	}
	list, err := messages.List(t.Context(), behind("70"), nil, 10)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, []string{"e69", "e10069"}, []string{list[0].Envelope.Type, list[1].Envelope.Type})
	list, err = messages.List(t.Context(), behind("71"), nil, 10)
	require.NoError(t, err)
	require.Empty(t, list, "it does not hold its key")
	_, err = messages.List(t.Context(), behind("x"), nil, 10)
	require.ErrorContains(t, err, "parked.Filter.Behind")
	plan, err := messages.Explain(t.Context(), behind("70"), nil, 10)
	require.NoError(t, err)
	require.NotContains(t, plan, "Seq Scan on inbox")
}

// One of several causes is found by its index, among 50,000 keys that failed and as many messages behind them.
func TestCauseIsReadByItsIndex(t *testing.T) {
	db := pgtest.Migrated(t, pgtest.Inbox)
	for _, statement := range []string{
		`INSERT INTO inbox_parked (consumer, key_lock, message_key, tenant_id, source, message_id, event_type, topic, content_type, payload,
				fingerprint, cause_since)
			SELECT 'billing', n / 2, gen_random_uuid(), 't', 'shop', n, 'e', 'o', '', '',
				CASE WHEN n % 2 = 1 THEN '' WHEN n % 20000 = 6 THEN 'rare' WHEN n % 1000 = 6 THEN 'some' ELSE 'many' END, now()
			FROM generate_series(0, 99999) n ORDER BY n`,
		`INSERT INTO inbox_key (consumer, key_lock, tenant_id, state, due_at) SELECT 'billing', n, 't', 'FAILED', now() FROM generate_series(0, 49999) n`,
		"VACUUM ANALYZE inbox_parked", "VACUUM ANALYZE inbox_key",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	messages := inbox.New(uow.New(db.DB, nil), nil).Parked()
	for cause, many := range map[string]int64{"rare": 5, "some": 95} {
		filter := parked.Filter{Consumer: "billing", Fingerprints: []string{cause, "none"}, State: parked.KeyFailed, FirstOnly: true}
		n, err := messages.Count(t.Context(), filter)
		require.NoError(t, err)
		require.Equal(t, many, n)
		list, err := messages.Explain(t.Context(), filter, nil, 51)
		require.NoError(t, err)
		count, err := messages.ExplainCount(t.Context(), filter)
		require.NoError(t, err)
		retry, err := messages.ExplainRetry(t.Context(), filter)
		require.NoError(t, err)
		sum, err := messages.ExplainTenants(t.Context(), filter)
		require.NoError(t, err)
		tenants, err := messages.Tenants(t.Context(), filter, 10)
		require.NoError(t, err)
		require.Equal(t, []parked.Tenant{{TenantID: "t", Messages: many}}, tenants)
		for _, plan := range []string{list, count, retry, sum} {
			require.Contains(t, plan, "inbox_parked_cause", cause)
			require.NotContains(t, plan, "Seq Scan on inbox", cause)
		}
	}
}
