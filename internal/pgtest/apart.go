package pgtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgerr"
)

// Apart is a [DB] in a database that no other test uses.
type Apart struct {
	*DB

	// Database is its name, safe in SQL without quotes.
	Database string
	// URL is its connection string.
	URL string
}

// OpenApart is [Migrated] in a new database on the same server. The database is dropped when the test ends.
func OpenApart(t testing.TB) *Apart {
	t.Helper()
	a := &Apart{Database: "test_" + strings.ToLower(rand.Text()[:16])}
	onServer(t, "CREATE DATABASE "+a.Database)
	t.Cleanup(func() { onServer(t, "DROP DATABASE "+a.Database+" WITH (FORCE)") })
	u, err := url.Parse(URL(t))
	require.NoError(t, err)
	u.Path = "/" + a.Database
	a.URL = u.String()
	a.DB = migrated(t, a.URL)
	return a
}

// Leave ends all sessions of the database and refuses new ones, as if the server were gone.
func (a *Apart) Leave(t testing.TB) {
	t.Helper()
	onServer(t, "ALTER DATABASE "+a.Database+" WITH ALLOW_CONNECTIONS false")
	a.endSessions(t)
}

// Return permits sessions again after [Apart.Leave].
func (a *Apart) Return(t testing.TB) {
	t.Helper()
	onServer(t, "ALTER DATABASE "+a.Database+" WITH ALLOW_CONNECTIONS true")
	a.SetMaxIdleConns(-1) // closes connections that the server has ended
	a.SetMaxIdleConns(maxConns)
}

// ReadOnly ends all sessions of the database, and makes new ones refuse to write. A standby does that, and a server
// that operators have set to read-only because its disk is full.
func (a *Apart) ReadOnly(t testing.TB) {
	t.Helper()
	onServer(t, "ALTER DATABASE "+a.Database+" SET default_transaction_read_only = on")
	a.endSessions(t)
}

// Writable permits writing again after [Apart.ReadOnly].
func (a *Apart) Writable(t testing.TB) {
	t.Helper()
	onServer(t, "ALTER DATABASE "+a.Database+" RESET default_transaction_read_only")
	a.endSessions(t)
}

func (a *Apart) endSessions(t testing.TB) {
	t.Helper()
	onServer(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '"+a.Database+"'")
}

const objectInUse = "55006"

// onServer runs a statement in the server's default database.
func onServer(t testing.TB, statement string) {
	t.Helper()
	server, err := sql.Open("pgx", URL(t))
	require.NoError(t, err)
	defer server.Close()
	for end := time.Now().Add(time.Minute); ; {
		_, err = server.ExecContext(context.Background(), statement)
		// DROP DATABASE waits only five seconds for the sessions of the database to end.
		if pgerr.Code(err) != objectInUse || time.Now().After(end) {
			break
		}
	}
	require.NoError(t, err)
}
