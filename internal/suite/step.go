package main

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// seedVariable is the variable that package nightly reads.
const seedVariable = "NIGHTLY_SEED"

// Arguments of the go command.
const (
	everything = "./..."
	vet        = "vet"
	// withoutDWARF saves a quarter of the time to link a program. Only debuggers read what is left out; stacks are complete without it.
	withoutDWARF = "-ldflags=-w"
)

var fuzzTarget = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(`)

// step is one call of the go command, or of another program.
type step struct {
	what    string
	program string // default: go
	args    []string
	env     []string
}

// linters are too slow for each change: where nothing is in a cache, they are built first. They look at all modules.
func linters() step {
	return step{what: "the linters, in each module", program: "make", args: []string{"lint"}}
}

// objects fails if a unit, a message or a request makes more objects than the bound of bench/objects.go.
func objects() step {
	return step{what: "the objects of a unit, a message and a request", args: []string{"run", "-C", benchmarks, ".", "objects"}}
}

func goTest(args ...string) []string { return append([]string{"test", "-json", withoutDWARF}, args...) }

// raced matches tests of messaging/pulsar in which pulsar-client-go has data races of its own. Their files are not
// built with the race detector, or they leave the racing part out; see messaging/pulsar/trouble_test.go.
const raced = "^TestTopic.*UnderLoad$|^TestLoopOutlivesItsTopic$|^TestConformance$/^unbatched$|^TestConformance$/^batched$/lost_connection"

// longest are the packages whose tests take longest, the longest first. Go starts packages in the order in which they are named, so none of
// these runs alone at the end, while the other cores have nothing to do.
const longest = ". ./httpmw ./cmd/oncebox/command ./projector ./messaging/pulsar ./inbox ./migrations ./examples/orders/kills/pulsar ./examples/orders " +
	"./examples/orders/shop ./console ./cmd/oncebox/internal/doctor ./oncetest ./uow"

// longestAtNight are those of make nightly. The first waits for most of its time, for outages that last as long as in life.
const longestAtNight = "./internal/endurance ./messaging/pulsar ./httpmw ./projector . ./inbox ./projector/internal/progress ./uow"

// testSteps are the steps of make test. The modules within this one are tested beside it, because neither keeps the cores busy all the time.
// The steps of messaging/pulsar are in one row: a report knows a test by its package and its name. Its short step, which mostly waits, comes
// first, when the modules compile.
func testSteps() (rows [][]step, err error) {
	modules, err := moduleSteps(".")
	// More packages than cores: most tests wait.
	all := append([]string{"-race", "-count=1", "-timeout=25m", "-p=4"}, strings.Fields(longest)...)
	night := []step{{what: "the tests of the night compile", args: append([]string{vet, "-tags=nightly"}, strings.Fields(ofTheNight)...)}}
	for module := range strings.FieldsSeq(modulesOfTheNight) {
		night = append(night, step{what: "the tests of the night compile: module " + module, args: []string{"-C", module, vet, "-tags=nightly", everything}})
	}
	return [][]step{{
		{what: "what runs without the race detector", args: goTest("-count=1", "-timeout=25m", "-run="+raced, "./messaging/pulsar")},
		{what: "all packages, with the race detector", args: goTest(append(all, everything)...)},
	}, slices.Concat([]step{{what: "the benchmarks compile", args: []string{"-C", benchmarks, vet, everything}}}, night, modules)}, err
}

// benchmarks is a module whose program is started by hand, but for its count of objects.
const benchmarks = "bench"

// ofTheNight are the packages with files that only make nightly runs, and modulesOfTheNight the modules with such packages.
const (
	ofTheNight        = "./internal/devenv ./internal/endurance ./internal/nightly ./messaging/pulsar"
	modulesOfTheNight = "messaging/kafka messaging/nats messaging/rabbitmq"
)

// alertTests is a module that builds Prometheus, which takes minutes with the race detector and half a minute without
// it. No code of ours runs concurrently there.
const alertTests = "docs/alerts/rulestest"

// moduleSteps returns steps for the tests of the modules within this one, each with its own go.mod, so that
// users of the main module do not need their dependencies. flags are those of go test.
func moduleSteps(root string, flags ...string) (steps []step, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); path != root && (name == "testdata" || name[0] == '.' || name[0] == '_') {
				return filepath.SkipDir // the go command ignores these folders, too
			}
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if entry.Name() == "go.mod" && dir != "." && dir != benchmarks {
			args := append([]string{"-C", filepath.Dir(path), "test", "-json", withoutDWARF, "-count=1", "-timeout=25m"}, flags...)
			if dir != alertTests {
				args = append(args, "-race")
			}
			steps = append(steps, step{what: "module " + dir, args: append(args, everything)})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for modules: %w", err)
	}
	return steps, nil
}

// nightlySteps returns the steps of make nightly. They run one after the other, because fuzzing uses all cores.
func nightlySteps(ctx context.Context, seed string) (rows [][]step, err error) {
	env := []string{seedVariable + "=" + seed}
	modules, err := moduleSteps(".", "-tags=nightly")
	if err != nil {
		return nil, err
	}
	for i := range modules {
		modules[i].env = env
	}
	fuzz, err := fuzzSteps(ctx)
	return [][]step{append([]step{
		{
			what: "all packages at full size, with the race detector", env: env,
			args: append(append(goTest("-race", "-tags=nightly", "-count=1", "-timeout=3h", "-p=2"), strings.Fields(longestAtNight)...), everything),
		},
		{
			what: "what runs without it", env: env,
			args: goTest("-tags=nightly", "-count=1", "-timeout=1h", "-run="+raced, "./messaging/pulsar"),
		},
	}, slices.Concat(modules, []step{linters(), objects()}, fuzz)...)}, err
}

// fuzzSteps returns a step for each fuzz target, because go fuzzes one at a time. An input that fails is written to
// testdata/fuzz, and make test tries it from then on.
func fuzzSteps(ctx context.Context) (steps []step, err error) {
	list, err := exec.CommandContext(ctx, "go", "list", "-f",
		`{{$p := .}}{{range .TestGoFiles}}{{$p.ImportPath}} {{$p.Dir}}/{{.}}{{"\n"}}{{end}}`+
			`{{range .XTestGoFiles}}{{$p.ImportPath}} {{$p.Dir}}/{{.}}{{"\n"}}{{end}}`, everything).Output()
	if err != nil {
		return nil, fmt.Errorf("list the files of tests: %w", err)
	}
	for line := range strings.Lines(string(list)) {
		pkg, file, found := strings.Cut(strings.TrimSpace(line), " ")
		if !found {
			continue // a line of another package
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("look for fuzz targets: %w", err)
		}
		for _, target := range fuzzTarget.FindAllSubmatch(text, -1) {
			name := string(target[1])
			steps = append(steps, step{
				what: short(pkg) + "." + name,
				args: goTest("-run=^$", "-fuzz=^"+name+"$", "-fuzztime=100000x", pkg),
			})
		}
	}
	return steps, nil
}

// noSleep makes a program with the race detector end at once. By default it sleeps for a second, so that leftover
// goroutines can report races; most packages fail anyway if there are any.
const noSleep = "atexit_sleep_ms=0"

// run runs the step and reports its tests. It returns an error if they cannot be run.
func (s step) run(ctx context.Context, env []string, r *report) error {
	cmd := exec.CommandContext(ctx, cmp.Or(s.program, "go"), s.args...)
	cmd.Env = slices.Concat([]string{"GORACE=" + noSleep}, os.Environ(), env, s.env)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("%s: %w", s.what, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: start %s: %w", s.what, cmd.Path, err)
	}
	failures, readErr := r.read(out)
	err = cmd.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", s.what, ctx.Err())
	}
	if readErr != nil {
		return fmt.Errorf("%s: read what the tests say: %w", s.what, readErr)
	}
	if err != nil && failures == 0 {
		r.failStep(s, err)
	}
	return nil
}
