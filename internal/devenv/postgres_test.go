//go:build linux || darwin

package devenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestPostgresServesAndStops(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	p, err := Postgres(t.Context(), &Options{Own: true, Out: &said})
	require.NoError(t, err)
	defer p.Stop()

	require.Regexp(t, `\APostgreSQL: (binaries on this machine, .*/bin|binaries in the user's cache folder, [0-9.]+), port \d+\n\z`, said.String())
	require.Equal(t, "on", queryOne(t, p.URL, "SHOW fsync"))
	require.Equal(t, "400", queryOne(t, p.URL, "SHOW max_connections"))
	require.Equal(t, "127.0.0.1", queryOne(t, p.URL, "SHOW listen_addresses"))

	require.NoError(t, p.Stop())
	require.NoDirExists(t, p.folder)
	require.Error(t, answers(t.Context(), p.URL))
	require.NoError(t, p.Stop(), "a second stop does nothing")
}

func TestPostgresKeepsItsDataOverAKill(t *testing.T) {
	t.Parallel()
	p := ownPostgres(t)
	queryOne(t, p.URL, "CREATE TABLE things AS SELECT 'kept' AS name")
	require.NoError(t, p.Kill())
	require.Error(t, answers(t.Context(), p.URL))
	require.NoError(t, p.Kill(), "a second kill does nothing")

	require.NoError(t, p.Restart(t.Context()))
	require.Equal(t, "kept", queryOne(t, p.URL, "SELECT name FROM things"))
	require.NoError(t, p.Restart(t.Context()), "also while it runs")
	require.Equal(t, "kept", queryOne(t, p.URL, "SELECT name FROM things"))
}

func TestPostgresPasswordIsNeeded(t *testing.T) {
	t.Parallel()
	p := ownPostgres(t)
	cfg, err := pgx.ParseConfig(p.URL)
	require.NoError(t, err)
	cfg.Password = "wrong"
	_, err = pgx.ConnectConfig(t.Context(), cfg)
	require.ErrorContains(t, err, "password authentication failed")
	require.Equal(t, "SCRAM-SHA-256$1", queryOne(t, p.URL, "SELECT split_part(rolpassword, ':', 1) FROM pg_authid WHERE rolname = current_user"))
}

func TestFetchedPostgresServes(t *testing.T) {
	t.Parallel()
	as, err := unprivileged()
	require.NoError(t, err)
	opts := withDefaults(nil)
	p := &PostgresServer{server: server{name: "postgresql", as: as, timeout: opts.StartTimeout}}
	require.NoError(t, p.prepare("QUIT"))
	defer p.Stop()

	programs, err := fetchPrograms(t.Context(), opts)
	require.NoError(t, err)
	require.NoError(t, p.serve(t.Context(), programs))
	require.Contains(t, queryOne(t, p.URL, "SELECT version()"), "PostgreSQL 17")
	require.NoError(t, p.Stop())
	require.NoDirExists(t, p.folder)
}

func TestPostgresEndsWithItsStarter(t *testing.T) {
	t.Parallel()
	s := startHelper(t, "postgres", nil)
	require.NoError(t, s.cmd.Process.Kill())
	requireGone(t, s.pid, s.folder)
}

func TestPostgresStartsForANormalUser(t *testing.T) {
	t.Parallel()
	nobody, err := unprivileged()
	require.NoError(t, err)
	s := startHelper(t, "postgres", nobody)
	require.NotZero(t, s.uid)
	require.NoError(t, s.stdin.Close())
	require.NoError(t, s.cmd.Wait())
	requireGone(t, s.pid, s.folder)
}

func TestPostgresThatDoesNotStartShowsItsLog(t *testing.T) {
	t.Parallel()
	p := ownPostgres(t)
	require.NoError(t, p.Kill())
	command := p.command
	p.command = func() *exec.Cmd {
		cmd := command()
		cmd.Args = append(cmd.Args, "-c", "no_such_setting=1")
		return cmd
	}
	err := p.Restart(t.Context())
	require.ErrorContains(t, err, "ended before it answered")
	require.ErrorContains(t, err, `unrecognized configuration parameter "no_such_setting"`)
}

func TestPostgresThatDoesNotAnswerEndsTheWait(t *testing.T) {
	t.Parallel()
	p := ownPostgres(t)
	ready := p.ready
	var began bool
	p.ready = func(ctx context.Context) error {
		began = ready(ctx) == nil || began // the last look may be cut off
		return errors.New("no answer")
	}
	for p.timeout = 3 * time.Second; !began; p.timeout *= 2 { // until it was long enough for the server to begin
		require.Less(t, p.timeout, DefaultStartTimeout)
		err := p.Restart(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Nil(t, p.current)
		if began {
			require.ErrorContains(t, err, "no answer")
			require.ErrorContains(t, err, "database system is ready to accept connections")
		}
	}
}

func TestVolatilePostgresDoesNotSync(t *testing.T) {
	t.Parallel()
	p, err := Postgres(t.Context(), &Options{Own: true, Volatile: true, PostgresSettings: map[string]string{"work_mem": "5MB"}})
	require.NoError(t, err)
	defer p.Stop()
	require.Equal(t, "off", queryOne(t, p.URL, "SHOW fsync"))
	require.Equal(t, "5MB", queryOne(t, p.URL, "SHOW work_mem"))
	require.Equal(t, roomInMemory(), memoryFolder != "" && strings.HasPrefix(p.folder, memoryFolder+"/"))
}

func TestPostgresOfSomebodyElse(t *testing.T) {
	p := ownPostgres(t)
	t.Setenv("DATABASE_URL", p.URL)
	var said bytes.Buffer
	other, err := Postgres(t.Context(), &Options{Out: &said})
	require.NoError(t, err)
	require.Equal(t, p.URL, other.URL)
	require.Regexp(t, `\APostgreSQL: DATABASE_URL, 127.0.0.1 port \d+\n\z`, said.String())

	require.ErrorIs(t, other.Kill(), ErrNotStartedHere)
	require.ErrorIs(t, other.Restart(t.Context()), ErrNotStartedHere)
	require.NoError(t, other.Stop())
	require.NoError(t, answers(t.Context(), p.URL), "still runs")
}

func TestPostgresOfSomebodyElseDoesNotAnswer(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://user:secret@127.0.0.1:1/db")
	_, err := Postgres(t.Context(), nil)
	require.ErrorContains(t, err, "DATABASE_URL does not answer")
	require.NotContains(t, err.Error(), "secret")
}

// ownPostgres starts a server for this test alone.
func ownPostgres(t *testing.T) *PostgresServer {
	t.Helper()
	p, err := Postgres(t.Context(), &Options{Own: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop()) })
	return p
}

func queryOne(t *testing.T, dsn, query string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), query)
	require.NoError(t, err)
	defer rows.Close()
	var value string
	if rows.Next() {
		require.NoError(t, rows.Scan(&value))
	}
	rows.Close()
	require.NoError(t, rows.Err())
	return value
}

// Processes of a server that was killed say that they end, also after the next one has said that it cannot start beside them.
func TestLeftoversAreSeenAmongWhatTheySay(t *testing.T) {
	t.Parallel()
	const inUse = `FATAL:  pre-existing shared memory block (key 1, ID 2) is still in use
HINT:  Terminate any old server processes associated with data directory "/tmp/data".`
	const ends = "\nFATAL:  terminating connection due to unexpected postmaster exit"
	require.True(t, leftovers(fmt.Errorf("%w\n%s", errEnded, inUse)))
	require.True(t, leftovers(fmt.Errorf("%w\n%s", errEnded, ends+"\n"+inUse+ends+ends)))
	require.False(t, leftovers(fmt.Errorf("%w\n%s\nFATAL: no such setting\nLOG: ended", errEnded, inUse)))
}
