package config_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// The configuration does not mention the pooler, which refuses settings that it does not know, or ignores them and
// loses prepared statements. The error names the settings that a pooler needs.
func TestOpenDBNamesTheSettingsForAPooler(t *testing.T) {
	db := pgtest.Open(t)
	for name, servers := range map[string]int{"another session each time": 8, "always the same one": 1} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Config{DatabaseURL: db.PooledBy(t, servers).DSN}
			_, err := config.OpenDB(t.Context(), cfg)
			require.ErrorContains(t, err, "idle_in_transaction_session_timeout")
			require.ErrorContains(t, err, "set ONCEBOX_POOLER=true")
			require.ErrorContains(t, err, "ONCEBOX_IDLE_IN_TRANSACTION=-1")
			require.NotContains(t, err.Error(), "start it", "it has answered")

			cfg.IdleInTransaction = -1
			_, err = config.OpenDB(t.Context(), cfg)
			require.ErrorIs(t, err, pgerr.ErrPooler)
			require.ErrorContains(t, err, "set ONCEBOX_POOLER=true")

			cfg.Pooler = true
			opened, err := config.OpenDB(t.Context(), cfg)
			require.NoError(t, err)
			require.NoError(t, opened.Close())
		})
	}
}

// A host accepts connections and says nothing: not to a wish for TLS, and not to the start of a session.
func TestOpenDBGivesUpAHostThatSaysNothing(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	for _, mode := range []string{"disable", "require"} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // reached only if it is not given up
		_, err := config.OpenDB(ctx, config.Config{
			DatabaseURL: "postgres://u:p@" + listener.Addr().String() + "/d?sslmode=" + mode, TCPUserTimeout: time.Second, DatabaseWait: -1,
		})
		require.ErrorContains(t, err, "does not answer")
		require.NoError(t, ctx.Err(), "the caller waits in vain: sslmode %s", mode)
		cancel()
	}
}
