//go:build linux || darwin

package devenv_test

import (
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/devenv"
)

// Servers that one process keeps are found by others, are kept once, and are gone after Release.
func TestServersAreKeptUntilReleased(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	env, err := devenv.Kept()
	require.NoError(t, err)
	require.Nil(t, env)
	ended, err := devenv.Release(t.Context())
	require.NoError(t, err)
	require.False(t, ended, "there is nothing to end")

	// This process is the keeper, so Release ends its context.
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	up, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- devenv.Keep(ctx, &devenv.Options{Volatile: true, Out: t.Output()}, func() { close(up) })
	}()
	await.Receive(t, up, "the servers answer")
	env, err = devenv.Kept()
	require.NoError(t, err)
	require.Len(t, env, 3)
	require.Contains(t, env[0], "DATABASE_URL=postgres://")
	require.NoError(t, devenv.Keep(ctx, nil, func() { t.Error("a second keeper has started servers") }))

	ended, err = devenv.Release(t.Context())
	require.NoError(t, err)
	require.True(t, ended)
	require.NoError(t, await.Receive(t, done, "the keeper ends"))
	env, err = devenv.Kept()
	require.NoError(t, err)
	require.Nil(t, env)
}
