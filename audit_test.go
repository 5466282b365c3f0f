package oncebox_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/operator"
)

// entered fills the audit of a part with as many entries that are older than the retention as two statements may delete.
const entered = `
INSERT INTO oncebox_audit (part, at, actor, action, tenant_id)
SELECT ?, now() - CASE WHEN n = 1 THEN interval '1 day' ELSE interval '500 days' END, 'ann', 'x', 't' FROM generate_series(1, 12000) n`

// bound and bounded make a statement fail that deletes more than 5,000 rows of the audit.
const (
	bound = `
CREATE FUNCTION bounded() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
	IF (SELECT count(*) FROM gone) > 5000 THEN RAISE 'too many at once'; END IF;
	RETURN NULL;
END $f$`
	bounded = `CREATE TRIGGER bounded AFTER DELETE ON oncebox_audit REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION bounded()`
)

// Each part deletes its own entries that are older than 400 days, in batches, and leaves the entries of the other parts.
func TestEachPartExpiresItsAuditInBatches(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	app, err := oncebox.New(db.DB, memory.New(nil), apptest.Config())
	require.NoError(t, err)
	parts := []operator.Part{operator.PartOutbox, operator.PartInbox, operator.PartIdempotency}
	for _, part := range parts {
		_, err := db.ExecContext(t.Context(), entered, string(part))
		require.NoError(t, err)
	}
	for _, statement := range []string{bound, bounded} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	purge := func(ctx context.Context) error { _, err := app.Idempotency.Purge(ctx, db.DB); return err }
	for n, clean := range []func(context.Context) error{app.Outbox.Clean, app.Inbox.Clean, purge} {
		require.NoError(t, clean(t.Context()))
		var left []string
		require.NoError(t, db.NewRaw("SELECT part FROM oncebox_audit GROUP BY part HAVING count(*) = 1 ORDER BY part").Scan(t.Context(), &left))
		require.Len(t, left, n+1, "the others are left alone")
		require.Contains(t, left, string(parts[n]))
	}
}
