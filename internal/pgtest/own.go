package pgtest

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/devenv"
)

// Own is a PostgreSQL that only one test uses, and may kill.
type Own struct {
	*devenv.PostgresServer
}

// Start starts a server with settings, as by postgres -c. It is removed when the test ends.
func Start(t *testing.T, settings map[string]string) *Own {
	t.Helper()
	server, err := devenv.Postgres(context.Background(), &devenv.Options{Own: true, Out: t.Output(), PostgresSettings: settings})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("pgtest: stop the server of the test: %v", err)
		}
	})
	return &Own{server}
}

// Open makes an empty schema on the server and a pool to it, like [Open].
func (s *Own) Open(t testing.TB) *DB {
	t.Helper()
	return kept(t, s.URL)
}

// Migrated is [Own.Open] with oncebox's tables.
func (s *Own) Migrated(t testing.TB) *DB {
	t.Helper()
	db := kept(t, s.URL)
	db.migrate(t)
	return db
}

func (s *Own) connect(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// Standby starts a standby of the server. It restarts the server for that. From then on each COMMIT waits until the
// standby has confirmed it.
func (s *Own) Standby(t *testing.T) *Own {
	t.Helper()
	server, err := s.PostgresServer.Standby(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("pgtest: stop the standby: %v", err)
		}
	})
	s.exec(t, "ALTER SYSTEM SET synchronous_standby_names = '"+devenv.StandbyName+"'")
	s.exec(t, "SELECT pg_reload_conf()")
	s.await(t, "SELECT sync_state = 'sync' FROM pg_stat_replication")
	return &Own{server}
}

// Promote makes the standby a primary.
func (s *Own) Promote(t testing.TB) {
	t.Helper()
	s.exec(t, "SELECT pg_promote()")
	s.await(t, "SELECT NOT pg_is_in_recovery()")
}

// Recover restarts the server in a recovery that lasts until done is called; it permits no session meanwhile. done
// returns when the server answers.
func (s *Own) Recover(t testing.TB) (done func()) {
	t.Helper()
	conn := s.connect(t)
	var data string
	require.NoError(t, conn.QueryRow(t.Context(), "SHOW data_directory").Scan(&data))
	hold := filepath.Join(data, "hold")
	for _, statement := range []string{
		"ALTER SYSTEM SET restore_command = 'while [ -e hold ]; do sleep 0.05; done; false'", // the folder of the data is the current one
		"COPY (SELECT 1) TO '" + hold + "'", "COPY (SELECT 1) TO '" + filepath.Join(data, "recovery.signal") + "'",
	} {
		_, err := conn.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	require.NoError(t, conn.Close(t.Context()))
	require.NoError(t, s.End(os.Interrupt))
	t.Cleanup(func() { _ = os.Remove(hold) })
	started := make(chan error, 1)
	go func() { started <- s.Restart(context.WithoutCancel(t.Context())) }()
	await.True(t, func() bool {
		_, err := pgx.Connect(t.Context(), s.URL)
		answer, ok := errors.AsType[*pgconn.PgError](err)
		return ok && answer.Code == "57P03"
	}, "the server recovers")
	return func() {
		require.NoError(t, os.Remove(hold))
		require.NoError(t, await.Receive(t, started, "the server has recovered"))
	}
}

// Vanish ends the server. comes starts it again, and returns when it answers.
func (s *Own) Vanish(t testing.TB) (comes func()) {
	t.Helper()
	require.NoError(t, s.End(os.Interrupt))
	return func() { require.NoError(t, s.Restart(t.Context())) }
}

func (s *Own) exec(t testing.TB, statement string) {
	t.Helper()
	conn := s.connect(t)
	_, err := conn.Exec(t.Context(), statement)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}

// await waits until a query returns true.
func (s *Own) await(t testing.TB, question string) {
	t.Helper()
	conn := s.connect(t)
	await.True(t, func() (is bool) {
		return conn.QueryRow(t.Context(), question).Scan(&is) == nil && is
	}, "%s", question)
	require.NoError(t, conn.Close(t.Context()))
}

// Reader opens a pool on the standby, for the schema of db.
func (s *Own) Reader(t testing.TB, db *DB) *bun.DB {
	t.Helper()
	dsn, err := withParams(s.URL, url.Values{"search_path": {db.Schema}, "default_query_exec_mode": {"exec"}})
	require.NoError(t, err)
	return (&DB{Schema: db.Schema, DSN: dsn}).Another(t)
}
