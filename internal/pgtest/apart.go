package pgtest

import (
	"context"
	"database/sql"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgerr"
)

// Apart is a [DB] whose database can leave, and refuse to write.
type Apart struct {
	*DB

	// Database is its name, safe in SQL without quotes.
	Database string
}

// OpenApart is [Migrated] for a test that makes its database unusable for a while.
func OpenApart(t testing.TB) *Apart {
	t.Helper()
	db := Migrated(t)
	u, err := url.Parse(db.URL)
	require.NoError(t, err)
	return &Apart{DB: db, Database: strings.TrimPrefix(u.Path, "/")}
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
