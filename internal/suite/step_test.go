package main

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file that is not built with the race detector is left out of the nightly run of all packages.
func TestWhatIsNotBuiltWithTheRaceDetectorRunsWithoutIt(t *testing.T) {
	of := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	const folder = "../../messaging/pulsar"
	left := 0
	require.NoError(t, filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(text), "//go:build !race\n") {
			return err
		}
		require.Equal(t, folder, filepath.Dir(path), "%s: the step runs no tests of other packages", path)
		for _, test := range of.FindAllStringSubmatch(string(text), -1) {
			require.Regexp(t, raced, test[1], path)
			left++
		}
		return nil
	}))
	require.NotZero(t, left)
}

// A test that fails in one row is not held for a failure of the other, whose packages do not compile.
func TestRowsRunAtTheSameTime(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	of := func(body string) step {
		return step{what: "module " + body, args: []string{"-C", module(t, body), "test", "-json", "-count=1", "./..."}}
	}
	met := filepath.Join(t.TempDir(), "met")
	require.NoError(t, syscall.Mkfifo(met, 0o600))
	meet := func(flag string) string { // the process that opens a pipe waits for the other one
		return `if _, err := os.OpenFile("` + met + `", ` + flag + `, 0); err != nil { t.Fatal(err) }`
	}
	require.NoError(t, runRows(t.Context(), [][]step{
		{of(meet("os.O_RDONLY")), of(`t.Error("no rain")`)}, {of(meet("os.O_WRONLY")), {what: "a step", args: []string{"vet", "./none"}}},
	}, nil, r))
	require.Equal(t, 2, r.failed, out.String())
	require.Contains(t, out.String(), "no rain")
	require.Contains(t, out.String(), "FAIL a step: exit status 1")
	require.Equal(t, 3, r.tests)
}

// Go tests a package once if two arguments name it, and a package name that does not exist fails the step.
func TestThePackagesThatTakeLongestAreThereAndBeginFirst(t *testing.T) {
	day, err := testSteps()
	require.NoError(t, err)
	night, err := nightlySteps(t.Context(), "1")
	require.NoError(t, err)
	for _, c := range []struct {
		longest string
		step    step
	}{{longest, day[0][len(day[0])-1]}, {longestAtNight, night[0][0]}} {
		dirs := strings.Fields(c.longest)
		require.Equal(t, append(slices.Clone(dirs), everything), c.step.args[slices.Index(c.step.args, dirs[0]):])
		for _, dir := range dirs {
			tests, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
			require.NoError(t, err)
			require.NotEmpty(t, tests, dir)
		}
	}
}

// A file that only the night builds would break unnoticed for a day.
func TestEveryPackageOfTheNightIsCompiled(t *testing.T) {
	rows, err := testSteps()
	require.NoError(t, err)
	compiled := rows[1][1].args
	require.Equal(t, []string{"vet", "-tags=nightly"}, compiled[:2])
	modules := strings.Fields(modulesOfTheNight)
	for n, module := range modules {
		require.Equal(t, []string{"-C", module, "vet", "-tags=nightly", everything}, rows[1][2+n].args)
	}
	tag := regexp.MustCompile(`(?m)^//go:build .*\bnightly\b`)
	found := map[string]bool{}
	require.NoError(t, filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		if tag.Match(text) {
			dir := filepath.ToSlash(filepath.Dir(path))[len("../../"):]
			for _, module := range modules {
				if dir == module || strings.HasPrefix(dir, module+"/") {
					dir = module
				}
			}
			found["./"+dir] = true
		}
		return err
	}))
	want := slices.Clone(compiled[2:])
	for _, module := range modules {
		want = append(want, "./"+module)
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(found)), want)
}

// The linters look at each module, and a finding fails the night. So does an object too many.
func TestTheNightRunsTheLinters(t *testing.T) {
	rows, err := nightlySteps(t.Context(), "1")
	require.NoError(t, err)
	require.Contains(t, rows[0], linters())
	require.Contains(t, rows[0], objects())
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^lint: [^\n]*\n\t@failed=0; for m in \$\$\(git ls-files go\.mod '\*/go\.mod'\);`, string(makefile))
	var out strings.Builder
	r := newReport(&out)
	require.NoError(t, step{what: "the linters", program: "sh", args: []string{"-c", "echo a finding; exit 1"}}.run(t.Context(), nil, r))
	require.Equal(t, 1, r.failed)
	require.Contains(t, out.String(), "a finding\nFAIL the linters: exit status 1")
}

// The tests of a nested module are not among the tests of this module.
func TestEveryModuleHasAStep(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"", "bench", "examples/one", "two", "two/testdata/three", ".four", alertTests} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, dir, "go.mod"), []byte("module x\n"), 0o600))
	}
	steps, err := moduleSteps(root)
	require.NoError(t, err)
	var found []string
	for _, s := range steps {
		found = append(found, s.what)
		require.Equal(t, []string{"test", "-json"}, s.args[2:4])
		require.FileExists(t, filepath.Join(s.args[1], "go.mod"), "go -C")
		require.Equal(t, s.what != "module "+alertTests, slices.Contains(s.args, "-race"), s.what)
	}
	require.Equal(t, []string{"module " + alertTests, "module examples/one", "module two"}, found)
	require.FileExists(t, filepath.Join("../..", alertTests, "go.mod"))
}
