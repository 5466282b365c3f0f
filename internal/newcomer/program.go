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
	// Adapter is the name of a package of messaging: nats. Default: the program stays as it is, without a broker.
	Adapter string
	// URL is the address of the broker. Required with Adapter.
	URL string
}

// Try makes the program, runs it, and sends the requests of the README. Each has to get what the README says. What the program needs is in the cache of
// modules already.
func (p *Program) Try(t *testing.T) {
	t.Helper()
	root, err := filepath.Abs(p.Root)
	require.NoError(t, err)
	read := func(name ...string) string {
		text, err := os.ReadFile(filepath.Join(append([]string{root}, name...)...))
		require.NoError(t, err)
		return string(text)
	}
	readme, text, sums := read("README.md"), read("examples", "fivesteps", "main.go"), read("go.sum")
	folder := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...) //nolint:gosec // the callers are in this file
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GOWORK=off")
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %v: %s", args, said)
	}
	run("mod", "init", "example.org/shop")
	run("mod", "edit", "-require="+product+"@v0.0.0", "-replace="+product+"="+root)
	s := &shop{path: filepath.Join(folder, "shop")}
	if p.Adapter != "" {
		text, sums = p.withBroker(t, text, readme), sums+read("messaging", p.Adapter, "go.sum")
		module := product + "/messaging/" + p.Adapter
		run("mod", "edit", "-require="+module+"@v0.0.0", "-replace="+module+"="+filepath.Join(root, "messaging", p.Adapter))
		s.env = []string{"ONCEBOX_" + strings.ToUpper(p.Adapter) + "_URL=" + p.URL}
	}
	require.NoError(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte(text), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "go.sum"), []byte(sums), 0o600))
	run("build", "-o", s.path, ".")
	s.try(t, readme)
}

// withBroker adds the line of the README that gives the program the client of NATS. Another adapter has another name, and nothing else is different.
func (p *Program) withBroker(t *testing.T, program, readme string) string {
	t.Helper()
	line := regexp.MustCompile(`(?m)^\s*Brokers: .*nats\.Kind\(\).*$`).FindString(readme)
	require.NotEmpty(t, line, "the README adds NATS to the program")
	const first = "\t\"github.com/oncebox/oncebox/messaging\"\n"
	source := regexp.MustCompile(`(?m)^\t\tSource: +"shop",\n`).FindString(program)
	require.NotEmpty(t, source, "the program has a source")
	require.Contains(t, program, first)
	program = strings.Replace(program, source, source+strings.ReplaceAll(line, "nats.", p.Adapter+".")+"\n", 1)
	return strings.Replace(program, first, first+"\t\""+product+"/messaging/brokers\"\n\t\""+product+"/messaging/"+p.Adapter+"\"\n", 1)
}
