package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The program runs as a newcomer's first one does: copied into an empty folder, as a module of its own. Only -replace is other, because
// this version of oncebox may be on no server yet. What it needs is in the cache of modules already.
func TestRunsAsAModuleOfItsOwn(t *testing.T) {
	oncebox, err := filepath.Abs("../..")
	require.NoError(t, err)
	folder := t.TempDir()
	for from, to := range map[string]string{"main.go": "main.go", "../../go.sum": "go.sum"} {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, to), text, 0o600))
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %v: %s", args, said)
		return string(said)
	}
	run("mod", "init", "example.org/shop")
	run("mod", "edit", "-require=github.com/oncebox/oncebox@v0.0.0", "-replace=github.com/oncebox/oncebox="+oncebox)
	said := run("run", ".")
	require.Contains(t, said, "POST /orders/o-1: 201 Created replayed: false\nPOST /orders/o-1: 201 Created replayed: true\n")
	require.Contains(t, said, "\nsold for 42\n")
}
