//go:build nightly && (linux || darwin)

package devenv

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKafkaServesAfterAKillAndStops(t *testing.T) {
	var said bytes.Buffer
	k, err := Kafka(t.Context(), &Options{Own: true, Out: &said})
	require.NoError(t, err)
	defer k.Stop()
	require.Regexp(t, `Kafka: libraries .*, 127.0.0.1:\d+\n\z`, said.String())
	require.NoError(t, k.Kill())
	require.Error(t, k.listens(t.Context()))
	require.NoError(t, k.Restart(t.Context()))

	t.Run("found by others", func(t *testing.T) {
		t.Setenv("KAFKA_URL", k.URL)
		other, err := Kafka(t.Context(), &Options{Out: &said})
		require.NoError(t, err)
		require.ErrorIs(t, other.Kill(), ErrNotStartedHere)
		require.NoError(t, other.Stop())
		require.NoError(t, k.listens(t.Context()), "still runs")
	})
	require.NoError(t, k.Stop())
	require.NoDirExists(t, k.folder)
	t.Setenv("KAFKA_URL", k.URL)
	_, err = Kafka(t.Context(), &Options{Out: &said})
	require.ErrorContains(t, err, "KAFKA_URL does not answer")
}
