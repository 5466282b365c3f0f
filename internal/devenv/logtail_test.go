package devenv

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLogTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	require.Contains(t, logTail(path), "no log")

	require.NoError(t, os.WriteFile(path, []byte("one\ntwo\n"), 0o600))
	require.Equal(t, "one\ntwo", logTail(path))

	var long strings.Builder
	for i := range 100_000 {
		fmt.Fprintln(&long, "line", i)
	}
	require.NoError(t, os.WriteFile(path, []byte(long.String()), 0o600))
	lines := strings.Split(logTail(path), "\n")
	require.Len(t, lines, 30)
	require.Equal(t, "line 99970", lines[0])
	require.Equal(t, "line 99999", lines[29])
}
