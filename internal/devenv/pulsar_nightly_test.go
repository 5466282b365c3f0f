//go:build nightly && (linux || darwin)

package devenv

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPulsarServesKeepsItsDataOverAKillAndStops(t *testing.T) {
	var said bytes.Buffer
	p, err := Pulsar(t.Context(), &Options{Own: true, Out: &said})
	require.NoError(t, err)
	defer p.Stop()
	require.Regexp(t, `Pulsar: distribution .*, pulsar://127.0.0.1:\d+, admin http://127.0.0.1:\d+\n\z`, said.String())

	_, err = p.Admin(t.Context(), http.MethodPut, "/namespaces/public/kept", "")
	require.NoError(t, err)
	require.NoError(t, p.Kill())
	require.Error(t, p.healthy(t.Context()))
	require.NoError(t, p.Restart(t.Context()))
	_, err = p.Admin(t.Context(), http.MethodGet, "/namespaces/public/kept", "")
	require.NoError(t, err)

	t.Run("found by others", func(t *testing.T) {
		t.Setenv("PULSAR_URL", p.URL)
		t.Setenv("PULSAR_ADMIN_URL", p.AdminURL+"/")
		var said bytes.Buffer
		other, err := Pulsar(t.Context(), &Options{Out: &said})
		require.NoError(t, err)
		require.Equal(t, "Pulsar: PULSAR_URL, "+p.URL+", admin "+p.AdminURL+"\n", said.String())
		require.ErrorIs(t, other.Kill(), ErrNotStartedHere)
		require.ErrorIs(t, other.Restart(t.Context()), ErrNotStartedHere)
		require.NoError(t, other.Stop())
		require.NoError(t, p.healthy(t.Context()), "still runs")
	})

	require.NoError(t, p.Stop())
	require.NoDirExists(t, p.folder)
	require.Error(t, p.healthy(t.Context()))
}

func TestPulsarEndsWithItsStarter(t *testing.T) {
	s := startHelper(t, "pulsar", nil)
	require.NoError(t, s.cmd.Process.Kill())
	requireGone(t, s.pid, s.folder)
}
