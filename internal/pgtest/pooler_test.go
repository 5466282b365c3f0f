package pgtest_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// through connects to the schema through the pooler.
func through(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	return conn
}

type querier interface {
	QueryRow(ctx context.Context, text string, args ...any) pgx.Row
}

func ask[T any](t *testing.T, db querier, text string, args ...any) (value T) {
	t.Helper()
	require.NoError(t, db.QueryRow(t.Context(), text, args...).Scan(&value))
	return value
}

func TestPoolerGivesEachTransactionAnotherSession(t *testing.T) {
	db := pgtest.Open(t)
	conn := through(t, db.Pooled(t).DSN)
	const pid = "SELECT pg_backend_pid()"
	first := ask[int](t, conn, pid)
	require.NotEqual(t, first, ask[int](t, conn, pid))

	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	mine := ask[int](t, tx, pid)
	require.Equal(t, mine, ask[int](t, tx, pid), "within a transaction it is one")
	_, err = tx.Exec(t.Context(), "CREATE TABLE things (id int)")
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, 0, count(t, db, "SELECT count(*) FROM things"), "it is in the schema")

	b := &pgx.Batch{}
	for range 3 {
		b.Queue(pid)
	}
	results := conn.SendBatch(t.Context(), b)
	var pids [3]int
	for i := range pids {
		require.NoError(t, results.QueryRow().Scan(&pids[i]))
	}
	require.NoError(t, results.Close())
	require.Equal(t, pids[0], pids[2], "a batch is one transaction")
}

// What a session keeps is another session's at the next transaction.
func TestPoolerLosesTheSession(t *testing.T) {
	db := pgtest.Open(t)
	conn := through(t, db.Pooled(t).DSN)
	_, err := conn.Prepare(t.Context(), "one", "SELECT 1")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "one", pgx.QueryExecModeCacheStatement)
	require.Equal(t, pgerr.InvalidStatementName, pgerr.Code(err))

	const lock = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))" // nobody else's, they are those of the database
	require.True(t, ask[bool](t, conn, lock, db.Schema))
	require.False(t, ask[bool](t, conn, lock, db.Schema), "it is held by a session that this is not")
}

func TestPoolerAndAClientThatGoesAway(t *testing.T) {
	db := pgtest.Open(t)
	_, err := db.ExecContext(t.Context(), "CREATE TABLE things (id int PRIMARY KEY)")
	require.NoError(t, err)
	pool, err := sql.Open("pgx", db.Pooled(t).DSN)
	require.NoError(t, err)
	conn, err := pool.Conn(t.Context())
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), "BEGIN; INSERT INTO things VALUES (1)", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	require.NoError(t, conn.Raw(func(c any) error {
		return c.(interface{ Conn() *pgx.Conn }).Conn().PgConn().Conn().Close()
	}))
	require.NoError(t, pool.Close())
	// It waits for the other transaction if that is open still, and would fail if it were committed.
	_, err = db.ExecContext(t.Context(), "INSERT INTO things VALUES (1)")
	require.NoError(t, err)
}

func TestPoolerCancels(t *testing.T) {
	db := pgtest.Open(t)
	conn := through(t, db.Pooled(t).DSN)
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.WithoutCancel(t.Context()), "SELECT pg_sleep(300) -- "+db.Schema)
		ended <- err
	}()
	const asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query LIKE ?"
	await.True(t, func() bool { return count(t, db, asleep, "%-- "+db.Schema) > 0 }, "the statement runs")
	require.NoError(t, conn.PgConn().CancelRequest(context.Background()))
	require.Equal(t, "57014", pgerr.Code(<-ended))
	require.Equal(t, 1, ask[int](t, conn, "SELECT 1"), "the connection is there still")
}

func TestPoolerRefuses(t *testing.T) {
	dsn := pgtest.Open(t).Pooled(t).DSN
	for code, change := range map[string]func(*pgconn.Config){
		"08P01": func(c *pgconn.Config) { c.RuntimeParams["search_path"] = "public" },
		"28P01": func(c *pgconn.Config) { c.Password = "another" },
	} {
		cfg, err := pgconn.ParseConfig(dsn)
		require.NoError(t, err)
		delete(cfg.RuntimeParams, "default_query_exec_mode")
		change(cfg)
		_, err = pgconn.ConnectConfig(t.Context(), cfg)
		require.Equal(t, code, pgerr.Code(err))
	}
}
