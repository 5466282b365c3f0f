package main

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// small is a repository with all that a release needs: a root module with a command, a module that requires it and has the same command under its
// own name and another one, and a module that is not released.
func small(t *testing.T) map[string]string {
	t.Helper()
	licence, err := os.ReadFile("../../LICENSE")
	require.NoError(t, err)
	const command = `package main

import (
	"fmt"
	"runtime/debug"
)

func main() {
	info, _ := debug.ReadBuildInfo()
	fmt.Println("version", info.Main.Version, info.Main.Path)
}
`
	return map[string]string{
		".gitignore":              "/dist/\n",
		"LICENSE":                 string(licence),
		"CHANGELOG.md":            "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- Greetings.\n",
		"docs/releases/v0.1.0.md": "# v0.1.0\n",
		"go.mod":                  "module github.com/acme/tool\n\ngo 1.26.0\n",
		"tool.go":                 "package tool\n\n// Greeting greets.\nfunc Greeting(name string) string { return \"hello \" + name }\n",
		"cmd/tool/main.go":        command,
		"adapter/go.mod": "module github.com/acme/tool/adapter\n\ngo 1.26.0\n\n" +
			"require github.com/acme/tool v0.0.0\n\nreplace github.com/acme/tool => ../\n",
		"adapter/adapter.go": "package adapter\n\nimport \"github.com/acme/tool\"\n\n" +
			"// Hello greets.\nfunc Hello() string { return tool.Greeting(\"adapter\") }\n",
		"adapter/cmd/tool-adapter/a.go": strings.Replace(command, "import (", "import (\n\t_ \"github.com/acme/tool/adapter\"", 1),
		"adapter/cmd/tool-vet/a.go":     "package main\n\nimport \"github.com/acme/tool/adapter\"\n\nfunc main() { println(adapter.Hello()) }\n",
		"bench/go.mod":                  "module github.com/acme/tool/bench\n\ngo 1.26.0\n",
		"bench/bench.go":                "package bench\n",
		"testdata/broken/go.mod":        "module x\n\nnonsense\n",
		"internal/hidden/hides.go":      "package hidden\n",
	}
}

// commitAll makes a repository of files, or adds them to it, and commits them. An empty file is removed.
func commitAll(t *testing.T, dir string, files map[string]string) repository {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if text == "" {
			require.NoError(t, os.Remove(file))
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	r := repository{dir: dir, env: []string{
		"GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.com", "GIT_AUTHOR_DATE=2026-11-20T10:00:00Z",
		"GIT_COMMITTER_NAME=Ann", "GIT_COMMITTER_EMAIL=ann@example.com", "GIT_COMMITTER_DATE=2026-11-20T10:00:00Z",
	}}
	if _, err := os.Stat(filepath.Join(dir, ".git")); err != nil {
		git(t, r, "init", "--quiet", "--initial-branch=main")
	}
	git(t, r, "add", "--all")
	git(t, r, "commit", "--quiet", "--allow-empty", "--message", "work")
	return r
}

func git(t *testing.T, r repository, args ...string) string {
	t.Helper()
	out, err := r.run(t.Context(), args...)
	require.NoError(t, err)
	return out
}

// withFiles are the files of the small repository with some others. An empty text takes a file away.
func withFiles(t *testing.T, others map[string]string) map[string]string {
	t.Helper()
	files := small(t)
	maps.Copy(files, others)
	maps.DeleteFunc(files, func(_, text string) bool { return text == "" })
	return files
}

// rehearse prepares a release of files.
func rehearse(t *testing.T, files map[string]string, version string) *rehearsal {
	t.Helper()
	source := commitAll(t, t.TempDir(), files)
	return &rehearsal{
		version: version, source: source, scratch: t.TempDir(),
		settings: settings{dist: t.TempDir(), platforms: []platform{{"linux", runtime.GOARCH}}},
	}
}

// must runs steps that have to pass.
func must(t *testing.T, steps ...func(context.Context) (string, error)) {
	t.Helper()
	for _, do := range steps {
		_, err := do(t.Context())
		require.NoError(t, err)
	}
}

// report runs a whole release and returns its lines.
func report(t *testing.T, source repository, s settings, version string, keep bool) (lines []string, err error) {
	t.Helper()
	var out bytes.Buffer
	err = release(t.Context(), &out, source, s, version, keep)
	return strings.Split(strings.TrimSpace(out.String()), "\n"), err
}

// line returns the line of a step.
func line(t *testing.T, lines []string, what string) string {
	t.Helper()
	for _, l := range lines {
		if f := strings.Fields(l); len(f) > 1 && f[1] == what {
			return l
		}
	}
	require.Fail(t, "no step "+what, strings.Join(lines, "\n"))
	return ""
}

// noVulnerabilities sets a database that knows of none.
func noVulnerabilities(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "index"), 0o700))
	for name, text := range map[string]string{"db.json": `{"modified":"2026-11-20T10:00:00Z"}`, "modules.json": "[]", "vulns.json": "[]"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "index", name), []byte(text), 0o600))
	}
	t.Setenv("GOVULNDB", "file://"+dir)
}
