package main

import (
	"context"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
)

func TestMain(m *testing.M) { pgtest.Main(m, pulsartest.Stop) }

func TestCommandFindsTheServers(t *testing.T) {
	pulsar := pulsartest.Server(t)
	t.Setenv("DATABASE_URL", pgtest.URL(t))
	t.Setenv("PULSAR_URL", pulsar.URL)
	t.Setenv("PULSAR_ADMIN_URL", pulsar.AdminURL)

	require.NoError(t, run(t.Context(), []string{"sh", "-c", `test "$DATABASE_URL $PULSAR_URL $PULSAR_ADMIN_URL" = "$0"`,
		pgtest.URL(t) + " " + pulsar.URL + " " + pulsar.AdminURL}))

	var failed *exec.ExitError
	require.ErrorAs(t, run(t.Context(), []string{"sh", "-c", "exit 7"}), &failed)
	require.Equal(t, 7, failed.ExitCode())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, run(ctx, []string{"sleep", "600"}), context.Canceled)
	require.ErrorContains(t, run(t.Context(), nil), "usage")
}
