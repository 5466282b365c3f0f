package pgtest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
)

// described has a line for each object of the schema, with its definition, and for each table with the number of its rows.
const described = `
WITH r AS (SELECT * FROM pg_class WHERE relnamespace = current_schema()::regnamespace)
SELECT concat_ws(' ', relname, relkind, relpersistence, reloptions, relacl, pg_get_partkeydef(oid), pg_get_expr(relpartbound, oid),
	obj_description(oid, 'pg_class')) FROM r
UNION ALL
SELECT concat_ws(' ', r.relname, attname, attnum, format_type(atttypid, atttypmod), attnotnull, attidentity, attstorage, attcompression, attstattarget,
	attacl, pg_get_expr(adbin, adrelid), col_description(attrelid, attnum))
FROM r JOIN pg_attribute ON attrelid = r.oid AND attnum > 0 LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
UNION ALL SELECT pg_get_indexdef(indexrelid) FROM r JOIN pg_index ON indexrelid = r.oid
UNION ALL SELECT concat_ws(' ', r.relname, conname, pg_get_constraintdef(c.oid)) FROM r JOIN pg_constraint c ON conrelid = r.oid
UNION ALL SELECT pg_get_triggerdef(g.oid) FROM r JOIN pg_trigger g ON tgrelid = r.oid AND NOT tgisinternal
UNION ALL SELECT concat_ws(' ', relname, pg_get_viewdef(oid)) FROM r WHERE relkind = 'v'
UNION ALL
SELECT concat_ws(' ', pg_get_functiondef(oid), proacl, obj_description(oid, 'pg_proc')) FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
UNION ALL
SELECT concat_ws(' ', sequencename, data_type, start_value, increment_by, cycle, cache_size, last_value) FROM pg_sequences WHERE schemaname = current_schema()
UNION ALL SELECT concat_ws(' ', relname, query_to_xml('SELECT count(*) FROM ' || oid::regclass, true, false, '')) FROM r WHERE relkind IN ('r', 'p')
ORDER BY 1`

// describe returns the lines without the name of the schema.
func describe(t *testing.T, db *pgtest.DB) (lines []string) {
	t.Helper()
	require.NoError(t, db.NewRaw(described).Scan(t.Context(), &lines))
	require.Greater(t, len(lines), 100)
	for i, line := range lines {
		lines[i] = strings.ReplaceAll(line, db.Schema, "here")
	}
	return lines
}

// A copy of the template is what the migrations make.
func TestCopyIsWhatTheMigrationsMake(t *testing.T) {
	for _, families := range [][]pgtest.Family{nil, {pgtest.Outbox}} {
		made := describe(t, pgtest.MigratedAt(t, pgtest.URL(t), families...))
		first, second := pgtest.Migrated(t, families...), pgtest.Migrated(t, families...)
		require.NotEqual(t, first.Schema, second.Schema)
		require.Equal(t, made, describe(t, first))
		require.Equal(t, made, describe(t, second))
	}
}

func TestDatabaseIsDroppedAtTheEnd(t *testing.T) {
	var left string
	t.Run("a test", func(t *testing.T) {
		require.NoError(t, pgtest.Migrated(t).NewRaw("SELECT current_database()").Scan(t.Context(), &left))
	})
	require.Equal(t, 0, count(t, pgtest.Open(t), "SELECT count(*) FROM pg_database WHERE datname = ?", left))
}
