package pgtest_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgerr"
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

// The server may still run a statement of the test when the schema is dropped, and take the tables in another order.
func TestSchemaIsDroppedDespiteDeadlocks(t *testing.T) {
	var schema string
	watch := pgtest.Open(t)
	ended := make(chan error, 1)
	t.Run("a test", func(t *testing.T) {
		db := pgtest.Open(t)
		schema = db.Schema
		ctx := context.WithoutCancel(t.Context())
		other, err := pgx.Connect(ctx, db.DSN)
		require.NoError(t, err)
		run := func(script string) error {
			_, err := other.PgConn().Exec(ctx, script).ReadAll()
			return err
		}
		require.NoError(t, run("CREATE TABLE a (); CREATE TABLE b (); CREATE TABLE c ()"))
		// DROP is the victim: PostgreSQL looks for its deadlock after a second.
		require.NoError(t, run("SET deadlock_timeout = '20s'; BEGIN; LOCK TABLE b"))
		go func() {
			defer other.Close(ctx)
			for waits := 0; waits == 0; {
				err := watch.NewRaw("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '?.b'::regclass", bun.Safe(schema)).Scan(ctx, &waits)
				if err != nil {
					ended <- err
					return
				}
			}
			// DROP waits for b, and has locked a or c before.
			ended <- run("LOCK TABLE a, c; COMMIT")
		}()
	})
	// On a machine that is so busy that PostgreSQL looked before there was a deadlock, the other session is the victim.
	if err := await.Receive(t, ended, "the other session ends"); pgerr.Code(err) != pgerr.Deadlock {
		require.NoError(t, err)
	}
	require.Equal(t, 0, count(t, watch, "SELECT count(*) FROM pg_namespace WHERE nspname = ?", schema))
}
