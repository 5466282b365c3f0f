package dead_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/dead"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/uow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Whatever an operator asks for among very many dead letters, no table is read from end to end.
func TestOperatorsReadByIndexes(t *testing.T) {
	db := pgtest.Migrated(t, pgtest.Inbox)
	for _, statement := range []string{
		`INSERT INTO inbox_dead (message_key, consumer, tenant_id, source, message_id, event_type, topic, ordering_key, content_type, payload,
				error_message, key_lock, seq, holds, died_at, fingerprint)
			SELECT gen_random_uuid(), 'c' || n % 50, 't' || n % 50, 's', n, 'e' || n % 50, 'o' || n % 50, 'k' || n, '', '',
				'no', n, n, true, now() - n * interval '10 s', 'f' || n % 50 FROM generate_series(1, 30000) n`,
		"INSERT INTO inbox (message_key, consumer, tenant_id, source) SELECT message_key, consumer, tenant_id, source FROM inbox_dead",
		`INSERT INTO inbox_key (consumer, key_lock, tenant_id, state, due_at)
			SELECT consumer, key_lock, tenant_id, 'DEAD', 'infinity' FROM inbox_dead`,
		"VACUUM ANALYZE inbox_dead", "VACUUM ANALYZE inbox_key", "ANALYZE inbox",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	letters := inbox.New(uow.New(db.DB, nil), nil).Dead()
	page, err := letters.List(t.Context(), operator.DeadFilter{}, nil, 3)
	require.NoError(t, err)
	noSeqScan := func(what, plan string, err error) {
		require.NoError(t, err)
		require.NotContains(t, plan, "Seq Scan on inbox", "%s", what)
	}
	for _, filter := range []operator.DeadFilter{
		{}, {Consumer: "c7"}, {TenantID: "t7"}, {Topic: "o7"}, {Type: "e7"}, {Fingerprint: "f7"}, {DiedBefore: time.Now().Add(-48 * time.Hour)},
	} {
		for _, after := range []*dead.Letter{nil, &page[2]} {
			plan, err := letters.ExplainList(t.Context(), filter, after, 100)
			noSeqScan(fmt.Sprintf("%+v", filter), plan, err)
		}
	}
	plan, err := letters.ExplainErrors(t.Context(), 100)
	noSeqScan("errors", plan, err)
	plan, err = letters.ExplainPick(t.Context(), 7, 7)
	noSeqScan("pick", plan, err)
	require.Contains(t, plan, "inbox_dead_key")
	require.NotContains(t, plan, "Sort")
	var keys []operator.MessageRef
	for _, d := range page {
		keys = append(keys, d.Key)
	}
	plan, err = letters.ExplainMove(t.Context(), keys, []int64{1, 2, 3})
	noSeqScan("move", plan, err)
}
