package pgtest

import (
	"context"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/devenv"
)

// Own is a PostgreSQL of the test's own, which it may kill.
type Own struct {
	*devenv.PostgresServer
}

// Start starts a server with settings, as with postgres -c. It is gone when the test ends.
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

// Open makes an empty schema and a pool to it, as [Open] does.
func (s *Own) Open(t testing.TB) *DB {
	t.Helper()
	return kept(t, s.URL)
}

// Migrated is [Own.Open] with this module's tables in the schema.
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

// Standby starts a standby of the server, which is restarted for that, and has each COMMIT wait until the standby confirmed it.
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

// Promote makes a primary of a standby.
func (s *Own) Promote(t testing.TB) {
	t.Helper()
	s.exec(t, "SELECT pg_promote()")
	s.await(t, "SELECT NOT pg_is_in_recovery()")
}

func (s *Own) exec(t testing.TB, statement string) {
	t.Helper()
	conn := s.connect(t)
	_, err := conn.Exec(t.Context(), statement)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}

// await waits until a question is answered with true.
func (s *Own) await(t testing.TB, question string) {
	t.Helper()
	conn := s.connect(t)
	await.True(t, func() (is bool) {
		return conn.QueryRow(t.Context(), question).Scan(&is) == nil && is
	}, "%s", question)
	require.NoError(t, conn.Close(t.Context()))
}

// Reader opens a pool to what a standby has of a schema.
func (s *Own) Reader(t testing.TB, db *DB) *bun.DB {
	t.Helper()
	dsn, err := withParams(s.URL, url.Values{"search_path": {db.Schema}, "default_query_exec_mode": {"exec"}})
	require.NoError(t, err)
	return (&DB{Schema: db.Schema, DSN: dsn}).Another(t)
}
