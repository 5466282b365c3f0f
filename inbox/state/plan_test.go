package state_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/uow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A message is found among very many without reading a table from end to end.
func TestMessagesAreLocatedByIndexes(t *testing.T) {
	db := pgtest.Migrated(t, pgtest.Inbox)
	const ids = "message_key, consumer, tenant_id, source"
	// Half of the keys have a day and half have none, so that both partitions of inbox are too large for a sequential scan. With random
	// keys the second partition had about 120 rows, and the plan was a matter of luck.
	const key = "overlay(gen_random_uuid()::text PLACING CASE n % 2 WHEN 0 THEN '00' ELSE 'ff' END FROM 1)::uuid"
	for _, statement := range []string{
		`INSERT INTO inbox_dead (` + ids + `, key_lock, message_id, event_type, topic, content_type, payload, attempts, error_message, holds, seq)
			SELECT ` + key + `, 'c', 't', 'shop', n, n, 'e', 'o', '', '', 1, 'no', true, n FROM generate_series(1, 30000) n`,
		`INSERT INTO inbox_parked (` + ids + `, key_lock, message_id, event_type, topic, content_type, payload)
			SELECT ` + ids + `, key_lock, message_id, event_type, topic, content_type, payload FROM inbox_dead`,
		"INSERT INTO inbox (" + ids + ") SELECT " + ids + " FROM inbox_dead",
		"INSERT INTO inbox_attempt (" + ids + ", attempts) SELECT " + ids + ", 1 FROM inbox_dead",
		"INSERT INTO inbox_step (" + ids + ", name, result) SELECT " + ids + ", 's', '1' FROM inbox_dead",
		"ANALYZE inbox_dead, inbox_parked, inbox, inbox_attempt, inbox_step",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	reader := inbox.New(uow.New(db.DB, nil), nil).State()
	plan, err := reader.ExplainLocate(t.Context(), uuid.NewString(), uuid.NewString())
	require.NoError(t, err)
	require.NotContains(t, plan, "Seq Scan on inbox")
}

// Statistics about consumers with very many waiting messages and dead letters read no table from end to end.
func TestStatisticsReadByIndexes(t *testing.T) {
	db := pgtest.Migrated(t, pgtest.Inbox)
	for _, statement := range []string{
		`INSERT INTO inbox_dead (message_key, consumer, tenant_id, source, key_lock, message_id, event_type, topic, content_type, payload,
				error_message, holds, seq)
			SELECT gen_random_uuid(), 'c' || n % 50, 't', 'shop', n, n, 'e', 'o', '', '', 'no', true, n FROM generate_series(1, 30000) n`,
		`INSERT INTO inbox_parked (message_key, consumer, tenant_id, source, key_lock, message_id, event_type, topic, content_type, payload)
			SELECT message_key, consumer, tenant_id, source, key_lock / 3, message_id, event_type, topic, content_type, payload FROM inbox_dead`,
		`INSERT INTO inbox_key (consumer, key_lock, tenant_id, state, due_at)
			SELECT DISTINCT consumer, key_lock, tenant_id, 'WAITING', now() FROM inbox_parked`,
		"VACUUM ANALYZE inbox_dead", "VACUUM ANALYZE inbox_parked", "VACUUM ANALYZE inbox_key",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	plan, err := inbox.New(uow.New(db.DB, nil), nil).State().ExplainStats(t.Context(), "c7")
	require.NoError(t, err)
	require.NotContains(t, plan, "Seq Scan on inbox")
	require.Contains(t, plan, "inbox_parked_age")
	require.Contains(t, plan, "Index Only Scan using inbox_key_pkey on inbox_key k", plan) // the states of the keys of a consumer
	require.NotContains(t, plan, "JIT")
}
