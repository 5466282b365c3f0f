package pgsql_test

import (
	"context"
	"database/sql"
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

// The host behind a connection of the pool has vanished. Whoever asks the connection has minutes, and gets another one long before.
func TestConnectionThatDoesNotAnswerIsReplaced(t *testing.T) {
	cfg, err := pgx.ParseConfig(pgtest.Open(t).DSN)
	require.NoError(t, err)
	var first atomic.Pointer[mute]
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		m := &mute{Conn: c}
		first.CompareAndSwap(nil, m)
		return m, err
	}
	pool := sql.OpenDB(pgsql.NewConnector(*cfg))
	defer pool.Close()
	pool.SetMaxOpenConns(1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, pool.PingContext(ctx))
	first.Load().silent.Store(true)
	require.NoError(t, pool.PingContext(ctx))
	_ = first.Load().Conn.Close() // or pgx waits for its last words
}
