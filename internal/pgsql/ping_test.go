package pgsql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// mute is a connection that takes what is sent, and says nothing any more.
type mute struct {
	net.Conn

	silent atomic.Bool
}

func (m *mute) Write(p []byte) (int, error) {
	if m.silent.Load() {
		return len(p), nil
	}
	return m.Conn.Write(p)
}

// The host behind a connection of the pool has vanished. The caller has minutes, and gets another connection long before.
func TestConnectionThatDoesNotAnswerIsReplaced(t *testing.T) {
	t.Parallel()
	cfg, err := pgx.ParseConfig(pgtest.Open(t).DSN)
	require.NoError(t, err)
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return &mute{Conn: c}, err
	}
	for name, connector := range pgsql.Asked(cfg, time.Second) {
		for use, fn := range map[string]func(context.Context, *sql.DB) error{
			"pinged": func(ctx context.Context, pool *sql.DB) error { return pool.PingContext(ctx) },
			"handed out": func(ctx context.Context, pool *sql.DB) error {
				_, err := pool.ExecContext(ctx, "SELECT 1")
				return err
			},
		} {
			t.Run(name+" "+use, func(t *testing.T) {
				t.Parallel() // each case waits for a second
				pool := sql.OpenDB(connector)
				defer pool.Close()
				pool.SetMaxOpenConns(1)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				first := only(ctx, t, pool)
				first.silent.Store(true)
				require.NoError(t, fn(ctx, pool))
				require.NotSame(t, first, only(ctx, t, pool))
				_ = first.Conn.Close() // or pgx waits for its last words
			})
		}
	}
}

// only returns the connection of a pool that has one.
func only(ctx context.Context, t *testing.T, pool *sql.DB) (m *mute) {
	t.Helper()
	conn, err := pool.Conn(ctx)
	require.NoError(t, err)
	onTrouble(t, conn, func(c *pgx.Conn, _ *pgsql.Trouble) { m = c.PgConn().Conn().(*mute) })
	require.NoError(t, conn.Close())
	return m
}

// Each unit, and each statement outside of one, takes a connection from the pool. That one was used just now is seen without a timer.
func TestCheckoutOfABusyConnectionCostsLittle(t *testing.T) {
	cfg, err := pgx.ParseConfig(pgtest.Open(t).DSN)
	require.NoError(t, err)
	for name, connector := range map[string]driver.Connector{
		"behind a pooler": pgsql.NewConnector(*cfg, pgsql.BehindPooler()), "pipelined": pgsql.NewConnector(*cfg),
	} {
		pool := sql.OpenDB(connector)
		objects := testing.AllocsPerRun(1000, func() {
			conn, err := pool.Conn(t.Context())
			require.NoError(t, err)
			require.NoError(t, conn.Close())
		})
		require.Less(t, objects, 3.0, name) // the sql.Conn is one
		require.NoError(t, pool.Close())
	}
}
