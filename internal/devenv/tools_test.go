//go:build linux || darwin

package devenv

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJavaIsFound(t *testing.T) {
	old, recent := fakeJava(t, `openjdk version "11.0.2" 2019-01-15`), fakeJava(t, `openjdk version "21-internal"`)
	t.Setenv("JAVA_HOME", old)
	t.Setenv("PATH", filepath.Join(recent, "bin")+":"+os.Getenv("PATH"))
	require.Equal(t, recent, findJava(t.Context()))

	t.Setenv("JAVA_HOME", recent)
	t.Setenv("PATH", filepath.Join(old, "bin")+":"+os.Getenv("PATH"))
	require.Equal(t, recent, findJava(t.Context()))
}

func TestJavaVersion(t *testing.T) {
	for text, want := range map[string]int{`java version "1.8.0_452"`: 1, `openjdk version "17.0.15" 2025-04-15`: 17, "none": 0} {
		require.Equal(t, want, javaVersion(t.Context(), filepath.Join(fakeJava(t, text), "bin", "java")), text)
	}
	require.Zero(t, javaVersion(t.Context(), "/no/java"))
}

func TestMissingToolNamesTheSteps(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // has no apt-get
	err := install(t.Context(), nil, withDefaults(nil), tool{user: "Pulsar", name: "Maven", packages: []string{"maven"}, hint: composeHint})
	require.ErrorContains(t, err, "needs Maven")
	require.ErrorContains(t, err, "apt-get install maven")
	require.ErrorContains(t, err, "docker compose up -d")
	require.ErrorContains(t, err, "PULSAR_URL=pulsar://127.0.0.1:6650")
}

func TestMissingToolIsInstalledByRoot(t *testing.T) {
	opts := withDefaults(nil)
	w, err := openWorkshop(t.TempDir(), opts)
	require.NoError(t, err)
	defer w.Stop()
	said := filepath.Join(t.TempDir(), "said")
	// An apt-get that has the second package only.
	script := fmt.Sprintf("#!/bin/sh\necho \"$@\" >>%s\ncase $* in *first*) exit 1;; esac\n", said)
	programs := t.TempDir()
	writeProgram(t, filepath.Join(programs, "apt-get"), []byte(script))
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))

	err = install(t.Context(), w, opts, tool{user: "A test", name: "a tool", packages: []string{"first", "second"}})
	if os.Geteuid() != 0 {
		require.ErrorContains(t, err, "apt-get install first")
		require.NoFileExists(t, said)
		return
	}
	require.NoError(t, err)
	calls, err := os.ReadFile(said)
	require.NoError(t, err)
	require.Regexp(t, `\A.* update\n.* install .* first\n.* install .* second\n\z`, string(calls))

	require.ErrorContains(t, install(t.Context(), w, opts, tool{user: "A test", name: "a tool", packages: []string{"first"}}), "apt-get install first")
}

func TestBrowserIsFound(t *testing.T) {
	programs := t.TempDir()
	chrome := filepath.Join(programs, "google-chrome")
	writeProgram(t, chrome, []byte("#!/bin/sh\n"))
	t.Setenv("PATH", programs)
	t.Setenv(browserVariable, "")
	path, err := Browser(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, chrome, path)

	t.Setenv("PATH", t.TempDir())
	t.Setenv(browserVariable, chrome)
	path, err = Browser(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, chrome, path)
	t.Setenv(browserVariable, "/no/browser")
	_, err = Browser(t.Context(), nil)
	require.ErrorContains(t, err, "CHROME_PATH names /no/browser, which is no program")
}

func TestMissingBrowserNamesTheSteps(t *testing.T) {
	if _, err := os.Stat("/Applications"); err == nil {
		t.Skip("macOS: a browser may be installed where PATH does not lead")
	}
	t.Setenv("PATH", t.TempDir()) // has no apt-get
	t.Setenv(browserVariable, "")
	_, err := Browser(t.Context(), nil)
	require.ErrorContains(t, err, "The test of the console needs Chromium")
	require.ErrorContains(t, err, "apt-get install chromium")
	require.ErrorContains(t, err, "set CHROME_PATH")
}

// fakeJava makes a home whose java only prints a version.
func fakeJava(t *testing.T, version string) string {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(home, "bin"), 0o755))
	script := fmt.Sprintf("#!/bin/sh\necho '%s' >&2\n", version)
	writeProgram(t, filepath.Join(home, "bin", "java"), []byte(script))
	return home
}
