package pgsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// victim fails as the victim of a deadlock does.
const victim = `DO $$ BEGIN RAISE deadlock_detected; END $$`

// trouble returns what the connection knows.
func trouble(t *testing.T, conn *sql.Conn) (failure, victim string, lost bool) {
	t.Helper()
	onTrouble(t, conn, func(c *pgx.Conn, known *pgsql.Trouble) {
		failure, victim, lost = pgerr.Code(known.Failure(c)), pgerr.Code(known.Victim()), known.Lost(c)
	})
	return failure, victim, lost
}

func onTrouble(t *testing.T, conn *sql.Conn, fn func(*pgx.Conn, *pgsql.Trouble)) {
	t.Helper()
	require.NoError(t, conn.Raw(func(c any) error {
		under := c.(interface{ Conn() *pgx.Conn }).Conn()
		fn(under, pgsql.TroubleOf(under))
		return nil
	}))
}

func TestTrouble(t *testing.T) {
	_, conn, tx := pipelined(t)
	step := func(statement, wantFailure, wantVictim string) {
		t.Helper()
		_, _ = tx.Exec(statement)
		failure, victim, lost := trouble(t, conn)
		require.Equal(t, wantFailure, failure)
		require.Equal(t, wantVictim, victim)
		require.False(t, lost)
	}
	step("SELECT 1", "", "")
	step("SAVEPOINT s", "", "")
	step("SELECT 1/0", "22012", "")
	step("SELECT 1", "22012", "")
	step("ROLLBACK TO s", "", "")
	step(victim, pgerr.Deadlock, pgerr.Deadlock)
	step("SELECT no syntax at all", pgerr.Deadlock, pgerr.Deadlock)
	step("ROLLBACK TO s", "", pgerr.Deadlock)
	step("SELECT 1/0", "22012", pgerr.Deadlock)
	require.NoError(t, tx.Rollback())
	failure, _, _ := trouble(t, conn)
	require.Empty(t, failure, "there is no transaction")
	onTrouble(t, conn, func(c *pgx.Conn, known *pgsql.Trouble) { known.Forget(c) })
	_, code, _ := trouble(t, conn)
	require.Empty(t, code)
}

// The first statement leaves together with BEGIN, once it is prepared.
func TestTroubleOfTheFirstStatement(t *testing.T) {
	_, conn, tx := pipelined(t)
	for range 2 {
		_, err := send(t, conn, false, "SELECT 1/0")
		require.Error(t, err)
		failure, _, _ := trouble(t, conn)
		require.Equal(t, "22012", failure)
		require.NoError(t, tx.Rollback())
		tx, err = conn.BeginTx(pgsql.BeginLater(t.Context(), time.Minute), nil)
		require.NoError(t, err)
	}
	require.NoError(t, tx.Rollback())
}

func TestLostIsNotCancelled(t *testing.T) {
	terminated := func(t *testing.T, _ *sql.Conn, tx *sql.Tx) {
		t.Helper()
		_, err := tx.Exec("SELECT pg_terminate_backend(pg_backend_pid())")
		require.Error(t, err)
	}
	for name, c := range map[string]struct {
		end  func(t *testing.T, conn *sql.Conn, tx *sql.Tx)
		lost bool
	}{
		"ended by the server": {terminated, true},
		"cancelled when all was over, in an earlier transaction": {func(t *testing.T, conn *sql.Conn, tx *sql.Tx) {
			t.Helper()
			onTrouble(t, conn, func(c *pgx.Conn, known *pgsql.Trouble) {
				known.HandleCancel(t.Context())
				known.HandleUnwatchAfterCancel()
				known.Forget(c)
			})
			terminated(t, conn, tx)
		}, true},
		"cancelled": {func(t *testing.T, _ *sql.Conn, tx *sql.Tx) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			_, err := tx.ExecContext(ctx, "SELECT pg_sleep(60)")
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, conn, tx := pipelined(t)
			c.end(t, conn, tx)
			_, _, lost := trouble(t, conn)
			require.Equal(t, c.lost, lost)
		})
	}
}

// The context of a statement may end between the look of database/sql at it and that of pgx. Nothing was sent then, and the transaction goes on.
func TestContextThatEndsBeforeTheStatementIsSent(t *testing.T) {
	_, conn, tx := pipelined(t)
	_, err := tx.Exec("SELECT 1") // the transaction has begun
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	answers := map[string]error{}
	require.NoError(t, conn.Raw(func(of any) error {
		prepared, err := of.(driver.ConnPrepareContext).PrepareContext(t.Context(), "SELECT 1")
		if err != nil {
			return err
		}
		_, answers["exec"] = of.(driver.ExecerContext).ExecContext(ended, "SELECT 1", nil)
		_, answers["query"] = of.(driver.QueryerContext).QueryContext(ended, "SELECT 1", nil)
		_, answers["prepared exec"] = prepared.(driver.StmtExecContext).ExecContext(ended, nil)
		_, answers["prepared query"] = prepared.(driver.StmtQueryContext).QueryContext(ended, nil)
		return nil
	}))
	b := &pgsql.Batch{}
	b.Queue("SELECT 1")
	_, answers["batch that is prepared first"] = pgsql.SendTogether(ended, bun.Conn{Conn: conn}, b)
	_, err = pgsql.SendTogether(t.Context(), bun.Conn{Conn: conn}, b)
	require.NoError(t, err)
	_, answers["batch"] = pgsql.SendTogether(ended, bun.Conn{Conn: conn}, b)
	for name, err := range answers {
		require.ErrorIs(t, err, context.Canceled, name)
	}
	_, err = tx.Exec("SELECT 1")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
}

// Hooks that a configuration set on its connections still run.
func TestTroubleIsNotedBesideOtherHandlers(t *testing.T) {
	cfg, err := pgx.ParseConfig(pgtest.URL(t))
	require.NoError(t, err)
	var seen []string
	cfg.OnPgError = func(_ *pgconn.PgConn, err *pgconn.PgError) bool {
		seen = append(seen, err.Code)
		return false // close it
	}
	pgsql.NoteTrouble(cfg)
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), victim)
	require.Error(t, err)
	require.Equal(t, []string{pgerr.Deadlock}, seen)
	require.True(t, conn.IsClosed())
}
