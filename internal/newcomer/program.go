package newcomer

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const product = "github.com/oncebox/oncebox"

// Program is the program of the five steps.
type Program struct {
	// Root is the folder of this repository, relative to that of the test.
	Root string
	// Adapter is the name of a package of messaging: nats. Default: the program stays as it is, with its broker in memory.
	Adapter string
	// URL is the address of the broker. Required with Adapter.
	URL string
}

// Run makes the program and returns what it prints. What it needs is in the cache of modules already.
func (p *Program) Run(t *testing.T) (said string) {
	t.Helper()
	root, err := filepath.Abs(p.Root)
	require.NoError(t, err)
	read := func(name ...string) string {
		text, err := os.ReadFile(filepath.Join(append([]string{root}, name...)...))
		require.NoError(t, err)
		return string(text)
	}
	text, sums := read("examples", "fivesteps", "main.go"), read("go.sum")
	folder := t.TempDir()
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...) //nolint:gosec // the callers are in this file
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %v: %s", args, said)
		return string(said)
	}
	run("mod", "init", "example.org/shop")
	run("mod", "edit", "-require="+product+"@v0.0.0", "-replace="+product+"="+root)
	if p.Adapter != "" {
		text, sums = p.withBroker(t, text, read("README.md")), sums+read("messaging", p.Adapter, "go.sum")
		module := product + "/messaging/" + p.Adapter
		run("mod", "edit", "-require="+module+"@v0.0.0", "-replace="+module+"="+filepath.Join(root, "messaging", p.Adapter))
	}
	require.NoError(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte(text), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "go.sum"), []byte(sums), 0o600))
	return run("run", ".")
}

// withBroker puts the block of the README that connects to NATS in place of the line with the broker in memory. Another adapter has another name and
// another address, and nothing else.
func (p *Program) withBroker(t *testing.T, program, readme string) string {
	t.Helper()
	block := regexp.MustCompile("(?s)```go\n([^`]*nats\\.Connect[^`]*)```").FindStringSubmatch(readme)
	require.NotNil(t, block, "the README connects to NATS")
	code := strings.ReplaceAll(regexp.MustCompile(`URL: "[^"]*"`).ReplaceAllString(block[1], `URL: "`+p.URL+`"`), "nats.", p.Adapter+".")
	line := regexp.MustCompile(`(?m)^\tapp, err := oncebox\.New\(.*\n`)
	require.Len(t, line.FindAllString(program, -1), 1)
	program = line.ReplaceAllLiteralString(program, code)
	require.Contains(t, program, product+"/messaging/memory")
	return strings.Replace(program, product+"/messaging/memory", product+"/messaging/"+p.Adapter, 1)
}
