package oncebox_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging/memory"
)

// entered fills an audit: $1 columns, $2 their values, and as many entries that are older than the retention as two statements may delete.
const entered = `
INSERT INTO %[1]s (at, actor, action, tenant_id, %[2]s)
SELECT now() - CASE WHEN n = 1 THEN interval '1 day' ELSE interval '500 days' END, 'ann', 'x', 't', %[3]s FROM generate_series(1, 12000) n`

// bound and bounded have a statement fail that deletes more than 5,000 rows of a table.
const (
	bound = `
CREATE FUNCTION bounded_%[1]s() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
	IF (SELECT count(*) FROM gone) > 5000 THEN RAISE 'too many at once'; END IF;
	RETURN NULL;
END $f$`
	bounded = `CREATE TRIGGER bounded AFTER DELETE ON %[1]s REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION bounded_%[1]s()`
)

// Every audit there is expires after 400 days, in batches, by an index on the time.
func TestEachAuditExpiresInBatches(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	app, err := oncebox.New(db.DB, memory.New(nil), quickConfig())
	require.NoError(t, err)
	others := map[string][2]string{
		"outbox_audit": {"topic, event_type", "'', ''"}, "inbox_audit": {"consumer, topic, event_type", "'c', '', ''"},
		"idempotency_audit": {"key_hash, step, epoch", "'', 's', 1"},
	}
	var audits, indexed []string
	require.NoError(t, db.NewRaw(`
SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename LIKE '%\_audit'`).Scan(t.Context(), &audits))
	// Not pg_indexes: a condition on its definitions has the server write those of every schema, and other tests drop theirs meanwhile.
	require.NoError(t, db.NewRaw(`
SELECT c.relname FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
WHERE c.relnamespace = current_schema()::regnamespace AND c.relname LIKE '%\_audit' AND i.indnatts = 1 AND a.attname = 'at'`).
		Scan(t.Context(), &indexed))
	require.Len(t, audits, len(others), "a new audit expires, too")
	require.ElementsMatch(t, audits, indexed)
	for _, audit := range audits {
		columns := others[audit]
		for _, statement := range []string{
			fmt.Sprintf(bound, audit), fmt.Sprintf(bounded, audit), fmt.Sprintf(entered, audit, columns[0], columns[1]),
		} {
			_, err := db.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
	}
	require.NoError(t, app.Outbox.Clean(t.Context()))
	require.NoError(t, app.Inbox.Clean(t.Context()))
	_, err = app.Idempotency.Purge(t.Context(), db.DB)
	require.NoError(t, err)
	for _, audit := range audits {
		var kept []time.Time
		require.NoError(t, db.NewRaw("SELECT at FROM "+audit).Scan(t.Context(), &kept))
		require.Len(t, kept, 1, audit)
	}
}
