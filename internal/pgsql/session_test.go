//go:build unix

package pgsql_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// Each way to lose transactions that did not reach the disk makes the mark another one. A server that keeps its statistics over a
// crash would fail this test: its version must have no mark then.
func TestMarkChangesWithEachCrash(t *testing.T) {
	s := pgtest.Start(t, nil)
	before := session(t, s.URL)
	require.Regexp(t, "^[0-9A-F]{8} [0-9.]+$", before.Mark)
	require.Equal(t, before.Mark, session(t, s.URL).Mark, "that of another session")

	for _, c := range []struct {
		name  string
		crash func()
		same  bool
	}{
		{"clean restart", func() {
			require.NoError(t, s.End(os.Interrupt))
			require.NoError(t, s.Restart(t.Context()))
		}, true},
		{"immediate shutdown", func() {
			require.NoError(t, s.End(syscall.SIGQUIT))
			require.NoError(t, s.Restart(t.Context()))
		}, false},
		{"kill -9 of the server", func() { s.Crash(t) }, false},
		{"kill -9 of one session", func() { s.KillSession(t) }, false},
	} {
		c.crash()
		after := session(t, s.URL)
		require.Equal(t, c.same, before.Mark == after.Mark, "%s: %q, then %q", c.name, before.Mark, after.Mark)
		require.Equal(t, before.Timeline, after.Timeline, "which tells nothing of it")
		before = after
	}
}

func session(t *testing.T, url string) pgsql.Session {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	return pgsql.SessionOf(t.Context(), conn)
}

// Behind a pooler the server of a connection may become another one.
func TestSessionBehindAPoolerIsAskedForAgain(t *testing.T) {
	db := pgtest.Open(t)
	for name, c := range map[string]struct {
		dsn  string
		want string
	}{"direct": {db.DSN, "old"}, "pooled": {db.Pooled(t).DSN, session(t, db.DSN).Mark}} {
		t.Run(name, func(t *testing.T) {
			conn, err := pgx.Connect(t.Context(), c.dsn)
			require.NoError(t, err)
			defer conn.Close(t.Context())
			require.NotEmpty(t, pgsql.SessionOf(t.Context(), conn).Mark)
			pgsql.Age(conn, "old")
			require.Equal(t, c.want, pgsql.SessionOf(t.Context(), conn).Mark)
		})
	}
}

// A standby becomes the primary while a session is open, which begins a new timeline. The session is identified anew.
func TestSessionOnAStandbyIsAskedForAgain(t *testing.T) {
	standby := pgtest.Start(t, nil).Standby(t)
	conn, err := pgx.Connect(t.Context(), standby.URL)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	require.Empty(t, pgsql.SessionOf(t.Context(), conn).Timeline)
	standby.Promote(t)
	pgsql.Age(conn, "old")
	require.Equal(t, session(t, standby.URL).Mark, pgsql.SessionOf(t.Context(), conn).Mark)
	require.Equal(t, "00000002", pgsql.SessionOf(t.Context(), conn).Timeline)
}
