package pgtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestOpenGivesEachTestItsOwnSchema(t *testing.T) {
	a, b := pgtest.Open(t), pgtest.Open(t)
	for _, db := range []*pgtest.DB{a, b} {
		_, err := db.ExecContext(t.Context(), "CREATE TABLE things (id int)")
		require.NoError(t, err)
	}
	_, err := a.ExecContext(t.Context(), "INSERT INTO things VALUES (1)")
	require.NoError(t, err)

	require.Equal(t, 1, count(t, a, "SELECT count(*) FROM things"))
	require.Equal(t, 0, count(t, b, "SELECT count(*) FROM things"))
}

func TestAnotherPoolSeesTheSameSchema(t *testing.T) {
	db := pgtest.Open(t)
	_, err := db.ExecContext(t.Context(), "CREATE TABLE things AS SELECT 1 AS id")
	require.NoError(t, err)

	var n int
	require.NoError(t, db.Another(t).NewRaw("SELECT count(*) FROM things").Scan(t.Context(), &n))
	require.Equal(t, 1, n)
}

func TestSchemaIsDroppedAtTheEnd(t *testing.T) {
	var schema string
	t.Run("a test", func(t *testing.T) {
		db := pgtest.Open(t)
		schema = db.Schema
		_, err := db.ExecContext(t.Context(), "CREATE TABLE things (id int)")
		require.NoError(t, err)
	})
	require.Equal(t, 0, count(t, pgtest.Open(t), "SELECT count(*) FROM pg_namespace WHERE nspname = ?", schema))
}

func TestMigratedHasTheTables(t *testing.T) {
	db := pgtest.Migrated(t)
	require.NoError(t, migrations.Verify(t.Context(), db.DB, &migrations.Config{Schema: db.Schema}))
	require.Equal(t, 0, count(t, db, "SELECT count(*) FROM outbox_messages"))
}

func TestDatabaseApartCanLeave(t *testing.T) {
	here, apart := pgtest.Migrated(t), pgtest.OpenApart(t)
	require.Equal(t, 0, count(t, apart.DB, "SELECT count(*) FROM outbox_messages"))
	require.Equal(t, 0, count(t, apart.DB, "SELECT count(*) FROM pg_namespace WHERE nspname = ?", here.Schema))
	apart.Leave(t)
	require.Error(t, apart.PingContext(t.Context()))
	require.NoError(t, here.PingContext(t.Context()))
	apart.Return(t)
	require.Equal(t, 0, count(t, apart.DB, "SELECT count(*) FROM outbox_messages"))
}

func count(t *testing.T, db *pgtest.DB, query string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, db.NewRaw(query, args...).Scan(t.Context(), &n))
	return n
}
