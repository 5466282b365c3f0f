package serve_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/serve"
)

type settings struct {
	URL  string        `env:"URL,notEmpty"`
	Hold time.Duration `env:"HOLD"`
}

// runs is set where TestSettingsOfAService runs this program as the program of a service.
const runs = "SERVE_TEST_RUNS"

// A service gets its settings, and one that has wrong settings is not made: the process ends, and its error has a line for each of them.
func TestSettingsOfAService(t *testing.T) {
	if os.Getenv(runs) != "" {
		serve.MainWith("TICKETS_", func(s settings) serve.Service {
			_, _ = fmt.Fprintln(os.Stdout, "made with", s.URL, s.Hold)
			return serve.Service{}
		})
	}
	run := func(env ...string) (made, says string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSettingsOfAService$")
		cmd.Env = append([]string{runs + "=1"}, env...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		var failed *exec.ExitError
		require.ErrorAs(t, cmd.Run(), &failed)
		require.Equal(t, 1, failed.ExitCode())
		return stdout.String(), stderr.String()
	}
	made, says := run("TICKETS_URL=http://provider", "TICKETS_HOLD=5m")
	require.Equal(t, "made with http://provider 5m0s\n", made)
	require.Contains(t, says, "serve: Service.Setup is nil")

	made, says = run("TICKETS_HOLD=5", "ONCEBOX_POOLER=perhaps", "ONCEBOX_SERVE_MIGRATE=perhaps")
	require.Empty(t, made)
	_, says, _ = strings.Cut(says, ": ") // the name of the program
	require.ElementsMatch(t, []string{
		`config: TICKETS_HOLD is "5": give a duration such as 500ms, 2s or 168h`,
		`config: TICKETS_URL is not set, or empty: it is required`,
		`config: ONCEBOX_POOLER is "perhaps": give true or false`,
		`config: ONCEBOX_SERVE_MIGRATE is "perhaps": give true or false`,
	}, strings.Split(strings.TrimSpace(says), "\n"))
}
