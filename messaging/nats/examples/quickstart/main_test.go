package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// The story ends as it does on the broker in memory. It runs as a program, because it starts itself again.
func TestStoryOnNATS(t *testing.T) {
	t.Setenv("ONCEBOX_DATABASE_URL", pgtest.URL(t))
	for _, variable := range []string{"ONCEBOX_NATS_URL", "ONCEBOX_PULSAR_URL", "PULSAR_URL"} {
		t.Setenv(variable, "")
	}
	program := filepath.Join(t.TempDir(), "quickstart")
	built, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", built)
	out, err := exec.CommandContext(t.Context(), program).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, line := range []string{
		"A NATS server runs in this process, with JetStream, at nats://127.0.0.1:",
		"commit, then publish   in between      yes     no      the event is LOST",
		"   ann        1        1000\n   bob        1        500\n   cid        1        250\n" +
			"   eva        1        100\n   gus        1        100\n   zoe        1        1\n",
	} {
		require.Contains(t, string(out), line)
	}

	out, err = exec.CommandContext(t.Context(), program, "-broker", "kafka").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "this program is built without it: go run -C messaging/kafka ./examples/quickstart")
}
