package localpg_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/localpg"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestDatabaseIsNewAndGoneAfterClose(t *testing.T) {
	t.Setenv("ONCEBOX_DATABASE_URL", pgtest.URL(t))
	var said bytes.Buffer
	db, err := localpg.Start(t.Context(), localpg.Output(&said))
	require.NoError(t, err)
	require.Regexp(t, `\APostgreSQL: ONCEBOX_DATABASE_URL, 127.0.0.1 port \d+\n\z`, said.String())
	other, err := localpg.Start(t.Context(), localpg.Output(io.Discard))
	require.NoError(t, err)
	require.NotEqual(t, db.URL, other.URL, "each run has a database of its own")

	open := connect(t, db.URL) // its session does not keep the database
	_, err = open.Exec(t.Context(), "CREATE TABLE things (id int)")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	require.NoError(t, db.Close(), "a second call returns what the first one did")
	_, err = pgx.Connect(t.Context(), db.URL)
	require.ErrorContains(t, err, "does not exist")

	require.NoError(t, connect(t, other.URL).Ping(t.Context()), "that of another run stays")
	require.NoError(t, other.Close())
}

func TestServerIsStartedWhereNoneIsNamed(t *testing.T) {
	t.Setenv("ONCEBOX_DATABASE_URL", "")
	t.Setenv("DATABASE_URL", "")
	var said bytes.Buffer
	db, err := localpg.Start(t.Context(), localpg.Output(&said), localpg.Volatile())
	require.NoError(t, err)
	require.Contains(t, said.String(), "PostgreSQL: binaries ")
	var fsync string
	require.NoError(t, connect(t, db.URL).QueryRow(t.Context(), "SHOW fsync").Scan(&fsync))
	require.Equal(t, "off", fsync)
	require.NoError(t, db.Close())
	_, err = pgx.Connect(t.Context(), db.URL)
	require.Error(t, err, "the server is gone")
}

func TestNamedServerMustAnswer(t *testing.T) {
	t.Setenv("ONCEBOX_DATABASE_URL", "postgres://user:secret@127.0.0.1:1/db")
	t.Setenv("DATABASE_URL", pgtest.URL(t)) // does not count beside the other one
	_, err := localpg.Start(t.Context(), localpg.Output(io.Discard))
	require.ErrorContains(t, err, "the PostgreSQL of ONCEBOX_DATABASE_URL does not answer")
	require.NotContains(t, err.Error(), "secret")
}

func TestRoleThatMayNotCreateDatabasesIsTold(t *testing.T) {
	server := connect(t, pgtest.URL(t))
	_, err := server.Exec(t.Context(), "DROP ROLE IF EXISTS localpg_test; CREATE ROLE localpg_test LOGIN PASSWORD 'weak'")
	require.NoError(t, err)
	defer func() {
		_, err := server.Exec(t.Context(), "DROP ROLE localpg_test")
		require.NoError(t, err)
	}()
	cfg := server.Config()
	t.Setenv("ONCEBOX_DATABASE_URL", (&url.URL{
		Scheme: "postgres", User: url.UserPassword("localpg_test", "weak"), Host: net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))), Path: cfg.Database,
	}).String())
	_, err = localpg.Start(t.Context(), localpg.Output(io.Discard))
	require.ErrorContains(t, err, "ALTER ROLE ... CREATEDB")
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
