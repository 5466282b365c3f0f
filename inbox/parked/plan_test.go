package parked_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/internal/pgtest"
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
