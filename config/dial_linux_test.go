package config_test

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// A host that vanishes without a word is noticed, whether something was sent or an answer is waited for.
func TestConnectionsNoticeAHostThatVanished(t *testing.T) {
	const userTimeout, keepIdle = 18, 4 // TCP_USER_TIMEOUT in milliseconds and TCP_KEEPIDLE in seconds, tcp(7)
	for _, c := range []struct {
		set           time.Duration
		pooler        bool
		timeout, idle int
	}{
		{0, false, 20_000, 10},
		{0, true, 20_000, 10},
		{6 * time.Second, false, 6_000, 3},
		{-1, false, 0, 15}, // Go's own
	} {
		db, err := config.OpenDB(t.Context(), config.Config{DatabaseURL: pgtest.URL(t), TCPUserTimeout: c.set, Pooler: c.pooler})
		require.NoError(t, err)
		require.Equal(t, c.timeout, option(t, db, userTimeout))
		require.Equal(t, c.idle, option(t, db, keepIdle))
		require.NoError(t, db.Close())
	}
	require.ErrorContains(t, (&config.Config{TCPUserTimeout: time.Millisecond}).Validate(), "TCPUserTimeout is 1ms")
}

// option returns an option of the socket of a connection.
func option(t *testing.T, db *bun.DB, name int) (value int) {
	t.Helper()
	ok, err := pgsql.Native(t.Context(), db, func(c *pgx.Conn) error {
		raw, err := c.PgConn().Conn().(*net.TCPConn).SyscallConn()
		require.NoError(t, err)
		return raw.Control(func(fd uintptr) {
			value, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, name)
			require.NoError(t, err)
		})
	})
	require.NoError(t, err)
	require.True(t, ok)
	return value
}
