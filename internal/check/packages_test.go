package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = modulePath + "/"

// outbox reaches a server in its tests, console by a package that has one, event does not.
var planted = []pkg{
	{ImportPath: modulePath, TestGoFiles: []string{"a_test.go"}, XTestImports: []string{root + "internal/pgtest"}},
	{ImportPath: root + "event", TestGoFiles: []string{"a_test.go"}, Imports: []string{"context"}},
	{ImportPath: root + "outbox", TestGoFiles: []string{"a_test.go"}, Imports: []string{root + "event"}, TestImports: []string{root + "internal/pgtest"}},
	{ImportPath: root + "console", XTestGoFiles: []string{"a_test.go"}, XTestImports: []string{root + "localpg"}},
	{ImportPath: root + "localpg", Imports: []string{serversOf}},
	{ImportPath: root + "internal/pgtest", TestGoFiles: []string{"a_test.go"}, Imports: []string{serversOf}},
}

func TestPackagesAreSplitByWhatTheirTestsNeed(t *testing.T) {
	require.Equal(t, []string{root + "event"}, withoutServers(planted))
	require.Equal(t, []string{modulePath, root + "outbox", root + "console", root + "internal/pgtest"}, needServers(planted, planted))
	require.Empty(t, needServers(planted, planted[1:2]))
}

func TestPackagesOfChangedFiles(t *testing.T) {
	of := func(files ...string) (paths []string) {
		for _, p := range changedPackages(planted, files) {
			paths = append(paths, p.ImportPath)
		}
		return paths
	}
	require.Equal(t, []string{root + "event", root + "outbox"}, of("outbox/add.go", "event/testdata/fuzz/FuzzDecode/1", "docs/testing.md"))
	require.Equal(t, []string{modulePath}, of("run.go"))
	require.Empty(t, of("README.md", "outbox2/a.go", "outbox/inner/a.go"))
}

// The difference to a branch includes commits, changes that were not committed, and files that git does not know.
func TestFilesThatDiffer(t *testing.T) {
	t.Chdir(t.TempDir())
	git := func(args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b"}, args...)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	write := func(name, text string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	git("init", "-q", "-b", "main")
	write("same.go", "")
	write("edited.go", "")
	git("add", ".")
	git("commit", "-qm", "a")
	git("checkout", "-qb", "mine")
	write("committed.go", "")
	git("add", ".")
	git("commit", "-qm", "b")
	git("checkout", "-q", "main")
	write("theirs.go", "")
	git("add", ".")
	git("commit", "-qm", "c")
	git("checkout", "-q", "mine")
	write("edited.go", "x")
	write("new/unknown.go", "")
	files, err := changedFiles(t.Context(), "main")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"committed.go", "edited.go", "new/unknown.go"}, files)
	_, err = changedFiles(t.Context(), "no-such-branch")
	require.ErrorContains(t, err, "no-such-branch")
}

// The lists are those of this module: the rules of the house need no server, the outbox does.
func TestListsOfThisModule(t *testing.T) {
	t.Chdir("../..")
	all, err := listPackages(t.Context())
	require.NoError(t, err)
	require.Subset(t, withoutServers(all), []string{root + "internal/house", root + "event"})
	require.Subset(t, needServers(all, all), []string{modulePath, root + "outbox", root + "messaging/pulsar"})
}
