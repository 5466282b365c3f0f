package newcomer

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// listed is a package as go list shows it.
type listed struct {
	ImportPath string   `json:"ImportPath"` //nolint:tagliatelle // of go list
	Deps       []string `json:"Deps"`       //nolint:tagliatelle // of go list
	Module     *struct {
		Path string `json:"Path"` //nolint:tagliatelle // of go list
	} `json:"Module"` //nolint:tagliatelle // of go list
}

func (p listed) module() string {
	if p.Module == nil {
		return "" // of the standard library
	}
	return p.Module.Path
}

// list returns packages and all packages that they import. It uses no network: what this repository needs is in the cache of modules.
func list(t *testing.T, args ...string) (all []listed) {
	t.Helper()
	args = append([]string{"list", "-deps", "-json=ImportPath,Deps,Module"}, args...)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = "../.."
	said := new(strings.Builder)
	cmd.Stderr = said
	out, err := cmd.Output()
	require.NoError(t, err, said)
	for read := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := read.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, p)
	}
}

// surplus returns the modules that go mod tidy loads for a copy of a program and that the program does not need, with the packages whose tests bring
// them. go mod tidy loads the tests of each package that the program imports, and what these tests import. It does not load the tests of packages that
// only these tests import. more are packages that the copy imports as well. The program's own tests are not in the copy.
func surplus(t *testing.T, program string, more ...string) map[string][]string {
	t.Helper()
	needed := map[string]bool{"": true}
	ours := []string{"-test", "-tags=nightly"} // tidy reads the files of all tags
	for _, p := range list(t, append(more, program)...) {
		needed[p.module()] = true
		if p.module() == product && p.ImportPath != program {
			ours = append(ours, p.ImportPath)
		}
	}
	loaded := list(t, ours...)
	moduleOf := map[string]string{}
	for _, p := range loaded {
		moduleOf[p.ImportPath] = p.module()
	}
	found := map[string][]string{}
	for _, p := range loaded {
		tested, isTest := strings.CutSuffix(p.ImportPath, ".test")
		if !isTest {
			continue
		}
		for _, dep := range p.Deps {
			if of := moduleOf[dep]; !needed[of] && !slices.Contains(found[of], tested) {
				found[of] = append(found[of], tested)
			}
		}
	}
	return found
}

// A first program loads few modules that only the tests of oncebox need: each has a reason here. What else a test needs stands in a package that no program
// imports, as internal/apptest.
func TestFirstProgramsLoadFewModulesOfTests(t *testing.T) {
	everywhere := map[string]string{
		"github.com/stretchr/testify": "almost each test uses it",
		"go.yaml.in/yaml/v3":          "testify imports it",
		"go.uber.org/goleak":          "each package with goroutines looks for those that are left",
	}
	chance := map[string]string{"pgregory.net/rapid": "it draws the cases of tests of chance"}
	sdk := map[string]string{
		"go.opentelemetry.io/otel/sdk":        "tests read spans, of a program that exports none",
		"go.opentelemetry.io/otel/sdk/metric": "tests read metrics, of a program that exports none",
	}
	servers := map[string]string{
		"github.com/fergusstrange/embedded-postgres": "tests start PostgreSQL, and a program that does not import localpg",
		"github.com/lib/pq":                          "embedded-postgres imports it",
		"github.com/xi2/xz":                          "embedded-postgres imports it",
		"github.com/uptrace/bun/dialect/pgdialect":   "tests open the database by bun, of a program that does not import config",
	}
	for name, c := range map[string]struct {
		program string
		more    []string
		allowed []map[string]string
	}{
		"the five steps":            {"examples/fivesteps", nil, []map[string]string{everywhere, chance}},
		"the five steps, and tests": {"examples/fivesteps", []string{product + "/oncetest"}, []map[string]string{chance}}, // oncetest imports the others
		"an App without serve":      {"examples/quickstart/memory", nil, []map[string]string{everywhere, chance, sdk}},
		"parts alone":               {"examples/alone", nil, []map[string]string{everywhere, chance, sdk, servers}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expected := map[string]bool{}
			for _, reasons := range c.allowed {
				for module := range reasons {
					expected[module] = true
				}
			}
			found := surplus(t, product+"/"+c.program, c.more...)
			unexpected := maps.Clone(found)
			maps.DeleteFunc(unexpected, func(module string, _ []string) bool { return expected[module] })
			require.Empty(t, unexpected, "modules by the packages whose tests import them: move the tests to a package that no program imports, as "+
				"internal/apptest")
			require.Len(t, found, len(expected), "each allowed module is loaded: %v", slices.Collect(maps.Keys(found)))
		})
	}
}
