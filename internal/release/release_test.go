package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A release of a small repository: made twice it has the same bytes, and kept it is what was checked. The next release is compared with it.
func TestReleaseFromEndToEnd(t *testing.T) {
	noVulnerabilities(t)
	source := commitAll(t, t.TempDir(), small(t))
	s := settings{dist: filepath.Join(source.dir, "dist"), platforms: []platform{{"linux", runtime.GOARCH}}}
	lines, err := report(t, source, s, "", false)
	require.NoError(t, err, strings.Join(lines, "\n"))
	require.Regexp(t, `^release-check version=v0.1.0 modules=2 binaries=2 images=2 image=sha256:[0-9a-f]{64} sbom=2 failed=0$`, lines[len(lines)-1])
	require.Contains(t, line(t, lines, "users"), "2 programs, 3 commands installed")
	require.Contains(t, line(t, lines, "vulnerabilities"), "none known in 4 programs")
	require.Equal(t, ".gitignore", git(t, source, "ls-files", ".gitignore"))
	require.Empty(t, git(t, source, "status", "--porcelain")+git(t, source, "tag"), "a check changes nothing")
	first := readFile(t, filepath.Join(s.dist, "SHA256SUMS"))
	for _, name := range []string{"tool", "tool-adapter"} {
		require.Contains(t, first, "  "+name+"_v0.1.0_image.tar\n")
		require.Contains(t, first, "  "+name+"_v0.1.0_linux_"+runtime.GOARCH+".cdx.json\n")
		require.Regexp(t, "(^|      | )"+name+` sha256:[0-9a-f]{64}: 1 platforms, linux/`+runtime.GOARCH+` read back and run`, strings.Join(lines, "\n"))
	}
	require.NotContains(t, first, "tool-vet", "it is for developers")
	require.NotContains(t, readFile(t, filepath.Join(s.dist, thirdParty)), "github.com/acme/tool", "it is no third party")
	require.Contains(t, readFile(t, filepath.Join(s.dist, "tool-adapter_v0.1.0_linux_"+runtime.GOARCH+".cdx.json")), "pkg:golang/github.com/acme/tool@v0.1.0")

	lines, err = report(t, source, s, "v0.1.0", true)
	require.NoError(t, err, strings.Join(lines, "\n"))
	require.Equal(t, first, readFile(t, filepath.Join(s.dist, "SHA256SUMS")))
	require.Equal(t, "adapter/v0.1.0\nv0.1.0", git(t, source, "tag"))
	require.Equal(t, "module github.com/acme/tool/adapter\n\ngo 1.26.0\n\nrequire github.com/acme/tool v0.1.0", git(t, source, "show", "v0.1.0:adapter/go.mod"))
	require.Regexp(t, `^github.com/acme/tool v0.1.0 h1:\S+\ngithub.com/acme/tool v0.1.0/go.mod h1:\S+$`, git(t, source, "show", "v0.1.0:adapter/go.sum"))
	require.Contains(t, git(t, source, "show", "v0.1.0~1:CHANGELOG.md"), "## [Unreleased]\n\n## [0.1.0] - 2026-11-20\n\n### Added\n")
	require.Equal(t, readFile(t, filepath.Join(source.dir, "adapter/go.mod")), git(t, source, "show", "v0.1.0~1:adapter/go.mod")+"\n")

	git(t, source, "merge", "--quiet", "--ff-only", "v0.1.0~1")
	nextVersion(t, source, s)
}

// nextVersion goes on after v0.1.0 with a change that breaks programs.
func nextVersion(t *testing.T, source repository, s settings) {
	t.Helper()
	lines, err := report(t, source, s, "", false)
	require.ErrorIs(t, err, errFailed)
	require.Contains(t, line(t, lines, "source"), "v0.2.0 has no notes: write docs/releases/v0.2.0.md")
	lines, err = report(t, source, s, "v0.1.0", false)
	require.ErrorIs(t, err, errFailed)
	require.Regexp(t, `FAIL  source .*version v0.1.0 exists: there is a tag v0.1.0`, line(t, lines, "source"))
	require.Equal(t, "release-check version=v0.1.0 modules=2 binaries=0 images=0 image=none sbom=0 failed=1", lines[len(lines)-1])

	compare := func(version string) error {
		r := &rehearsal{version: version, source: source, scratch: t.TempDir(), settings: s}
		must(t, r.inspect, r.commit, r.zips)
		_, err := r.compareAPI(t.Context())
		return err
	}
	commitAll(t, source.dir, map[string]string{
		"tool.go":                 "package tool\n\nfunc Greeting(name, tongue string) string { return name + tongue }\n",
		"adapter/adapter.go":      "package adapter\n\nimport \"github.com/acme/tool\"\n\nfunc Hello() string { return tool.Greeting(\"\", \"\") }\n",
		"docs/releases/v0.1.1.md": "# v0.1.1\n",
		"docs/releases/v0.2.0.md": "# v0.2.0\n",
		"CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- `Greeting` speaks.\n\n" +
			"## [0.1.0] - 2026-11-20\n\n### Changed\n\n- Greeting\n",
	})
	require.ErrorContains(t, compare("v0.1.1"), "a patch version breaks no program")
	require.ErrorContains(t, compare("v0.2.0"),
		"Greeting: changed from func(string) string to func(string, string) string: this breaks programs; say in CHANGELOG.md")
	commitAll(t, source.dir, map[string]string{"CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n### Changed\n\n- `Greeting` takes a tongue.\n"})
	require.NoError(t, compare("v0.2.0"))
}

// What cannot be released is refused before anything is made.
func TestWhatCannotBeReleased(t *testing.T) {
	for name, c := range map[string]struct {
		files   map[string]string
		open    string // a file that is not committed
		version string
		want    string
	}{
		"a file is not committed": {open: "forgotten.go", want: "?? forgotten.go"},
		"a file is changed":       {open: "tool.go", want: " M tool.go"},
		"no notes":                {files: map[string]string{"docs/releases/v0.1.0.md": ""}, want: "v0.1.0 has no notes: write docs/releases/v0.1.0.md"},
		"no version":              {version: "1.2", want: `version "1.2" is not in the form v1.2.3`},
		"half a version":          {version: "v1.2", want: `version "v1.2" is not in the form v1.2.3`},
		"the path has no v2":      {version: "v2.0.0", want: "from v2 on its path ends with the major version"},
		"a go.mod is broken":      {files: map[string]string{"more/go.mod": "nonsense\n"}, want: "look for modules"},
		"modules in a circle": {files: map[string]string{
			"go.mod": "module github.com/acme/tool\n\ngo 1.26.0\n\n" +
				"require github.com/acme/tool/adapter v0.0.0\n\nreplace github.com/acme/tool/adapter => ./adapter\n",
		}, want: "modules require each other in a circle, 2 of them"},
	} {
		r := rehearse(t, withFiles(t, c.files), c.version)
		if c.open != "" {
			require.NoError(t, os.WriteFile(filepath.Join(r.source.dir, c.open), []byte("package tool\n"), 0o600))
		}
		_, err := r.inspect(t.Context())
		require.ErrorContains(t, err, c.want, name)
	}
}

// The changelog must have an entry for the release.
func TestReleaseNeedsAnEntryOfTheChangelog(t *testing.T) {
	for changelog, want := range map[string]string{
		"# Changelog\n\n## [Unreleased]\n\n## [0.0.1] - 2026-01-01\n\n- Old.\n": "has no entry",
		"# Changelog\n\n- New.\n": `no section "## [Unreleased]"`,
	} {
		r := rehearse(t, withFiles(t, map[string]string{"CHANGELOG.md": changelog}), "")
		must(t, r.inspect)
		_, err := r.commit(t.Context())
		require.ErrorContains(t, err, want)
	}
}

// What users would stumble over in a module is found in its zip: all of it at once.
func TestWhatUsersWouldStumbleOver(t *testing.T) {
	files := small(t)
	r := rehearse(t, withFiles(t, map[string]string{
		"LICENSE":  "Do as you like, but not on Mondays.\n",
		"dump.sql": strings.Repeat("x", largestFile+1),
		"go.mod":   files["go.mod"] + "\nexclude example.com/x v1.0.0\n",
		"adapter/go.mod": files["adapter/go.mod"] + "\nreplace example.com/fork => ../bench\n" +
			"\nrequire github.com/acme/tool/bench v0.0.0\n\nreplace github.com/acme/tool/bench => ../bench\n",
	}), "")
	must(t, r.inspect, r.commit)
	_, err := r.zips(t.Context())
	for _, want := range []string{
		"module github.com/acme/tool: dump.sql has 524289 bytes, and a file of a module has at most 524288\nit has no file LICENSE with a licence",
		"module github.com/acme/tool/adapter: it has no file LICENSE with a licence that is known",
		"module github.com/acme/tool: go.mod excludes example.com/x@v1.0.0",
		"module github.com/acme/tool/adapter: go.mod replaces example.com/fork",
		"go.mod requires github.com/acme/tool/bench@v0.0.0, which is not released",
	} {
		require.ErrorContains(t, err, want)
	}
}

// A program of a user finds what only works within the repository.
func TestUsersFindWhatOnlyWorksHere(t *testing.T) {
	r := rehearse(t, withFiles(t, map[string]string{
		// Files of a module that is not released are in no zip.
		"tool.go": "package tool\n\nimport _ \"github.com/acme/tool/bench\"\n",
		"go.mod": "module github.com/acme/tool\n\ngo 1.26.0\n\n" +
			"require github.com/acme/tool/bench v0.0.0\n\nreplace github.com/acme/tool/bench => ./bench\n",
		"bench/bench.go": "package bench\n",
	}), "")
	must(t, r.inspect, r.commit)
	_, _ = r.zips(t.Context())
	_, err := r.buildPrograms(t.Context())
	require.ErrorContains(t, err, "a new module that requires github.com/acme/tool: go get")
}

// A step that fails does not hide the others, and a step without a database keeps the tags away.
func TestEachStepIsReported(t *testing.T) {
	t.Setenv("GOVULNDB", "file://"+t.TempDir())
	source := commitAll(t, t.TempDir(), withFiles(t, map[string]string{"LICENSE": ""}))
	s := settings{dist: filepath.Join(source.dir, "dist"), platforms: []platform{{"linux", runtime.GOARCH}}}
	lines, err := report(t, source, s, "", true)
	require.ErrorIs(t, err, errFailed)
	require.Regexp(t, "^FAIL  zips ", line(t, lines, "zips"))
	require.Regexp(t, "^ok    checksums ", line(t, lines, "checksums"))
	require.Regexp(t, "^skip  vulnerabilities .*cannot be reached", line(t, lines, "vulnerabilities"))
	require.Regexp(t, "^FAIL  tags .*a step failed or was skipped", line(t, lines, "tags"))
	require.Contains(t, line(t, lines, "licences"), "github.com/acme/tool: it has no licence")
	require.Regexp(t, "failed=3$", lines[len(lines)-1])
	require.Empty(t, git(t, source, "tag"))
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}
