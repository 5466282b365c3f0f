package pgtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
)

// Each family stands alone, and pairs do.
func TestFamilies(t *testing.T) {
	const tables = `SELECT string_agg(DISTINCT split_part(relname, '_', 1), ' ' ORDER BY split_part(relname, '_', 1))
		FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')`
	for want, families := range map[string][]pgtest.Family{
		"inbox oncebox":                    {pgtest.Inbox},
		"oncebox outbox":                   {pgtest.Outbox},
		"idempotency oncebox":              {pgtest.Idempotency},
		"inbox oncebox outbox":             {pgtest.Outbox, pgtest.Inbox},
		"idempotency inbox oncebox outbox": nil,
	} {
		var got string
		require.NoError(t, pgtest.Migrated(t, families...).NewRaw(tables).Scan(t.Context(), &got))
		require.Equal(t, want, got)
	}
}
