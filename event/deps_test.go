package event_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A domain model that uses this package must link no database, no broker and no telemetry.
func TestStandardLibraryOnly(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	require.NoError(t, err)
	require.Equal(t, []string{"github.com/oncebox/oncebox/event"}, strings.Fields(string(out)))
}
