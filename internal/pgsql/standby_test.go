//go:build unix

package pgsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// replicated is a server whose COMMITs wait for a standby.
type replicated struct {
	*pgtest.DB

	primary *pgtest.Own
}

func newReplicated(t *testing.T) *replicated {
	t.Helper()
	r := &replicated{primary: pgtest.Start(t, nil)}
	r.primary.Standby(t)
	r.DB = r.primary.Open(t)
	_, err := r.Exec("CREATE TABLE t (n int)")
	require.NoError(t, err)
	return r
}

const insert = "INSERT INTO {schema}.t VALUES ($1)"

// one returns a pool of one connection, and its process at the server.
func (r *replicated) one(t *testing.T, isolation string, tracer ...pgx.QueryTracer) (pool *bun.DB, conn *pgx.Conn) {
	t.Helper()
	cfg, err := pgx.ParseConfig(r.DSN)
	require.NoError(t, err)
	cfg.RuntimeParams["default_transaction_isolation"] = isolation
	for _, tracer := range tracer {
		cfg.Tracer = tracer
	}
	db := sql.OpenDB(pgsql.NewConnector(*cfg, pgsql.BehindPooler()))
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	pool = bun.NewDB(db, pgdialect.New())
	_, err = pgsql.Native(t.Context(), pool, func(c *pgx.Conn) error {
		conn = c
		return nil
	})
	require.NoError(t, err)
	return pool, conn
}

// awaitWait returns when the connection waits for the standby, with a statement like that.
func (r *replicated) awaitWait(t *testing.T, conn *pgx.Conn, like string) {
	t.Helper()
	await.True(t, func() (waits bool) {
		err := r.NewRaw("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = ? AND wait_event = 'SyncRep' AND query LIKE ?)",
			conn.PgConn().PID(), like).Scan(context.Background(), &waits)
		return err == nil && waits
	}, "nothing waits for the standby with %s", like)
}

func (r *replicated) endWait(t *testing.T, conn *pgx.Conn, like string) {
	t.Helper()
	r.awaitWait(t, conn, like)
	_, err := r.Exec("SELECT pg_cancel_backend(?)", conn.PgConn().PID())
	require.NoError(t, err)
}

func (r *replicated) rows(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, r.NewRaw("SELECT count(*) FROM t").Scan(t.Context(), &n))
	return n
}

func TestConfirmed(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	t.Run("given up", r.givenUp)
	t.Run("wait ended", r.waitEnded)
	t.Run("wait ended, connection broken", r.waitEndedAndBroken)
}

// The caller gives up while the statement waits for the standby. Nobody sees it before the standby has it.
func (r *replicated) givenUp(t *testing.T) {
	var (
		release func()
		ended   []<-chan error
		conns   []*pgx.Conn
	)
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	// Both at once: pgx takes 15 s to close a connection whose statement was given up.
	for _, isolation := range []string{"read committed", "serializable"} {
		pool, conn := r.one(t, isolation)
		run := pgsql.New(r.Schema, false).Confirmed()
		var isolated string
		// Asks for the isolation.
		require.NoError(t, run.QueryRow(t.Context(), pool, "SHOW transaction_isolation", nil, &isolated))
		end := make(chan error, 1)
		conns, ended = append(conns, conn), append(ended, end)
		if release == nil {
			release = r.primary.Stall(t)
		}
		go func() {
			_, err := run.Exec(ctx, pool, insert, 2)
			end <- err
		}()
		r.awaitWait(t, conn, "%")
	}
	giveUp()
	for i, conn := range conns {
		require.ErrorIs(t, <-ended[i], context.Canceled)
		<-conn.PgConn().CleanupDone() // a cancel request would have been sent
		r.awaitWait(t, conn, "%")
	}
	require.Zero(t, r.rows(t))
	release()
	await.True(t, func() bool { return r.rows(t) == 2 }, "both rows are seen")
}

// An administrator ends the wait, and PostgreSQL calls the statement a success.
func (r *replicated) waitEnded(t *testing.T) {
	for _, again := range []bool{false, true} {
		pool, conn := r.one(t, "read committed")
		run := pgsql.New(r.Schema, false).Confirmed()
		release := r.primary.Stall(t)
		ended := make(chan error, 1)
		go func() {
			var n int
			ended <- run.QueryRow(t.Context(), pool, insert+" RETURNING n", []any{1}, &n)
		}()
		r.endWait(t, conn, "INSERT%")
		if again {
			r.endWait(t, conn, "%pg_logical_emit_message%")
			require.ErrorIs(t, <-ended, pgsql.ErrUnconfirmed)
		} else {
			r.awaitWait(t, conn, "%pg_logical_emit_message%")
			release()
			require.NoError(t, <-ended)
		}
		release()
		_, err := run.Exec(t.Context(), pool, insert, 3)
		require.NoError(t, err, "the connection keeps no trouble")
	}
}

// The connection breaks when the statement, which is committed, was answered. It must not be run again.
func (r *replicated) waitEndedAndBroken(t *testing.T) {
	_, err := r.Exec("TRUNCATE t")
	require.NoError(t, err)
	pool, conn := r.one(t, "read committed", breaker{})
	run := pgsql.New(r.Schema, false).Confirmed()
	release := r.primary.Stall(t)
	ended := make(chan error, 1)
	go func() {
		_, err := run.Exec(t.Context(), pool, insert, 1)
		ended <- err
	}()
	r.endWait(t, conn, "INSERT%")
	select {
	case err = <-ended:
	case <-time.After(time.Minute):
		t.Error("it waits for the standby again")
		release()
		err = <-ended
	}
	require.ErrorIs(t, err, pgsql.ErrUnconfirmed)
	require.ErrorIs(t, err, driver.ErrBadConn)
	require.Equal(t, 1, r.rows(t))
}

// breaker closes a connection when it has inserted a row.
type breaker struct{}

type insertion struct{}

func (breaker) TraceQueryStart(ctx context.Context, _ *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, insertion{}, strings.HasPrefix(query.SQL, "INSERT"))
}

func (breaker) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	if is, _ := ctx.Value(insertion{}).(bool); is {
		_ = conn.Close(ctx)
	}
}
