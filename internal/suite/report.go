package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/nightly"
)

const (
	// long is how long a test may run before it is listed.
	long = 2 * time.Minute
	// lookAround is the time between two such lists.
	lookAround = time.Minute
	// failed and skipped are values of Action in the output of go test -json.
	failed  = "fail"
	skipped = "skip"
)

// event is a line of the output of go test -json; see go doc test2json.
type event struct {
	Action     string  `json:"Action"`
	Package    string  `json:"Package"`
	ImportPath string  `json:"ImportPath"`
	Test       string  `json:"Test"`
	Output     string  `json:"Output"`
	Elapsed    float64 `json:"Elapsed"`
	Key        string  `json:"Key"`
	Value      string  `json:"Value"`
}

type testID struct{ pkg, test string }

// report prints what happens and counts it. Steps that run at the same time share it.
type report struct {
	mu       sync.Mutex // guards the fields below
	out      io.Writer
	now      func() time.Time
	since    map[testID]time.Time
	output   map[testID][]string
	packages map[string]time.Duration // total time of all steps
	tests    int
	skipped  int
	rounds   int
	failed   int
	failedIn map[string]bool // number of failed tests by package
}

func newReport(out io.Writer) *report {
	return &report{
		out: out, now: time.Now, since: map[testID]time.Time{}, output: map[testID][]string{},
		packages: map[string]time.Duration{}, failedIn: map[string]bool{},
	}
}

// read reads the output of one go test -json, and returns how many tests in it have failed.
func (r *report) read(from io.Reader) (failures int, err error) {
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			failures += r.count(line)
		}
		if err == io.EOF {
			return failures, nil
		}
		if err != nil {
			return failures, err
		}
	}
}

// watch prints the tests that run for long, each minute until stop is called.
func (r *report) watch() (stop func()) {
	tick, done := time.NewTicker(lookAround), make(chan struct{})
	go func() {
		for {
			select {
			case <-tick.C:
				r.sayWhatTakesLong()
			case <-done:
				return
			}
		}
	}()
	return func() {
		tick.Stop()
		close(done)
	}
}

// count counts one line, and returns how many failures it reports.
func (r *report) count(line []byte) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.failed
	r.line(line)
	return r.failed - before
}

func (r *report) line(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		fmt.Fprintf(r.out, "%s", line) // output of another command
		return
	}
	id := testID{short(cmp.Or(e.Package, e.ImportPath)), e.Test}
	switch e.Action {
	case "run", "cont":
		r.since[id] = r.now()
	case "pause": // it waits for its turn among parallel tests
		delete(r.since, id)
	case "output", "build-output":
		r.keep(id, e.Output)
	case "attr":
		if n, err := strconv.Atoi(e.Value); err == nil && e.Key == nightly.RoundsAttr {
			r.rounds += n
		}
	case "pass", skipped, failed:
		r.end(id, e)
	case "build-fail": // its package is reported as failed, too
		fmt.Fprint(r.out, strings.Join(r.output[id], ""))
	}
}

// keep stores the output of a test until the test has failed. Lines about a wait are printed at once.
func (r *report) keep(id testID, text string) {
	if strings.Contains(text, " has waited ") {
		fmt.Fprintf(r.out, "%s: %s", id.pkg, text)
	}
	r.output[id] = append(r.output[id], text)
}

func (r *report) end(id testID, e event) {
	delete(r.since, id)
	took := time.Duration(e.Elapsed * float64(time.Second))
	switch {
	case id.test == "" && took > 0:
		fmt.Fprintf(r.out, "%-5s%8s  %s\n", map[string]string{"pass": "ok", failed: "FAIL", skipped: "-"}[e.Action], seconds(took), id.pkg)
		r.packages[id.pkg] += took
	case id.test != "" && !strings.Contains(id.test, "/"):
		r.tests++
	}
	if e.Action == skipped && id.test != "" {
		r.skipped++
		fmt.Fprintf(r.out, "skipped: %s %s\n", id.pkg, id.test)
	}
	if e.Action == failed {
		r.failure(id)
	} else {
		delete(r.output, id)
	}
}

// failure prints the output of a test and its sub-tests. A package fails with its tests; it counts as a failure of its
// own only if no test did: it may have ended in the middle of a test.
func (r *report) failure(id testID) {
	if id.test == "" {
		if r.failedIn[id.pkg] {
			return
		}
	} else if strings.Contains(id.test, "/") {
		return
	}
	r.failedIn[id.pkg] = true
	r.fail(fmt.Sprintf("%s %s\n%s", id.pkg, id.test, strings.Join(r.said(id), "")))
}

// said returns the output of a test and of its sub-tests that have not passed, or of all such tests of a package.
func (r *report) said(id testID) (all []string) {
	var ids []testID
	for other := range r.output {
		if other.pkg == id.pkg && (id.test == "" || other.test == id.test || strings.HasPrefix(other.test, id.test+"/")) {
			ids = append(ids, other)
		}
	}
	slices.SortFunc(ids, func(a, b testID) int { return cmp.Compare(a.test, b.test) })
	for _, other := range ids {
		all = append(all, r.output[other]...)
	}
	return all
}

// failStep reports a step that failed although none of its tests did.
func (r *report) failStep(s step, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail(fmt.Sprintf("%s: %v", s.what, err))
}

func (r *report) fail(what string) {
	r.failed++
	fmt.Fprintln(r.out, "FAIL", what)
}

func (r *report) sayWhatTakesLong() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for id, since := range r.since {
		if took := now.Sub(since); took >= long && !strings.Contains(id.test, "/") {
			fmt.Fprintf(r.out, "... %s has run for %s: %s\n", id.test, took.Round(time.Second), id.pkg)
		}
	}
}

// printTimes prints the packages, the slowest first.
func (r *report) printTimes(all time.Duration) {
	names := slices.SortedFunc(maps.Keys(r.packages), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.packages[b], r.packages[a]), cmp.Compare(a, b))
	})
	fmt.Fprintln(r.out, "\ntime of each package:")
	for _, name := range names {
		fmt.Fprintf(r.out, "%9s  %s\n", seconds(r.packages[name]), name)
	}
	fmt.Fprintf(r.out, "%d tests in %s, skipped: %d, failed: %d\n", r.tests, seconds(all), r.skipped, r.failed)
}

// short removes the part of a package's path that all have in common.
func short(pkg string) string {
	name := strings.TrimPrefix(pkg, "github.com/oncebox/oncebox")
	return cmp.Or(strings.TrimPrefix(name, "/"), "oncebox")
}
