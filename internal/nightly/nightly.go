package nightly

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const (
	// seedVariable is the variable with the seed of a nightly run. Without it each test draws a seed.
	seedVariable = "NIGHTLY_SEED"
	// oneVariable is a variable with a seed. If it is set, tests run only with this seed.
	oneVariable = "SEED"
	// folder has one file for each test, with a seed on each line.
	folder = "testdata/seeds"
	// RoundsAttr is the test attribute with the number of rounds that a test has run; see testing.T.Attr.
	RoundsAttr = "rounds"
)

// N returns few in make test, and many in a nightly run.
func N[T any](few, many T) T {
	if On {
		return many
	}
	return few
}

// Seeds returns the seeds with which a test is to run. First come the seeds that failed once. Then come 1 to few in make test, and many fresh seeds
// in a nightly run. SEED in the environment replaces them all. The seed of a failed round is printed, and in a nightly run recorded as failed.
func Seeds(t testing.TB, few, many int) iter.Seq[uint64] {
	t.Helper()
	seeds := draw(t, few, many)
	return func(yield func(uint64) bool) {
		var (
			current uint64
			rounds  int
		)
		defer func() {
			// Deferred, because FailNow in the loop ends the goroutine.
			t.Attr(RoundsAttr, strconv.Itoa(rounds))
			if t.Failed() {
				report(t, current)
			}
		}()
		for _, current = range seeds {
			rounds++
			if !yield(current) || t.Failed() {
				return
			}
		}
	}
}

// Check is [rapid.Check] with few checks of fixed values in make test, and many with new values in a nightly run.
// Failing values are written to testdata/rapid, and are tried first from then on.
//
// Tests that use it do not run in parallel, because rapid reads its flags from global variables.
func Check(t *testing.T, few, many int, property func(*rapid.T)) {
	t.Helper()
	checks := N(few, many)
	set(t, "rapid.seed", strconv.FormatUint(cmp.Or(master(t)^hash(t.Name()), 1), 10))
	set(t, "rapid.checks", strconv.Itoa(checks))
	t.Attr(RoundsAttr, strconv.Itoa(checks))
	rapid.Check(t, property)
}

// set sets a flag, unless the command line has set it.
func set(t *testing.T, name, value string) {
	t.Helper()
	for _, arg := range os.Args[1:] {
		if strings.HasPrefix(strings.TrimLeft(arg, "-"), name) {
			return
		}
	}
	if err := flag.Set(name, value); err != nil {
		t.Fatalf("nightly: set the flag %s: %v", name, err)
	}
}

func draw(t testing.TB, few, many int) []uint64 {
	t.Helper()
	if text := os.Getenv(oneVariable); text != "" {
		return []uint64{parse(t, oneVariable, text)}
	}
	seeds := failedOnce(t)
	if !On {
		for n := range few {
			seeds = append(seeds, uint64(n+1))
		}
		return seeds
	}
	rng := rand.New(rand.NewPCG(master(t), hash(t.Name())))
	for range many {
		seeds = append(seeds, rng.Uint64())
	}
	return seeds
}

// master returns the seed of the run.
func master(t testing.TB) uint64 {
	t.Helper()
	if !On {
		return 1
	}
	if text := os.Getenv(seedVariable); text != "" {
		return parse(t, seedVariable, text)
	}
	return rand.Uint64()
}

func parse(t testing.TB, name, text string) uint64 {
	t.Helper()
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("nightly: %s=%s: a seed is a whole number from 0 to 2^64-1", name, text)
	}
	return seed
}

func hash(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return h.Sum64()
}

// file returns the path of the file with a test's failed seeds.
func file(t testing.TB) string {
	t.Helper()
	return filepath.Join(folder, strings.NewReplacer("/", "-", " ", "_").Replace(t.Name()))
}

// failedOnce returns the seeds in the test's file. A remark may follow a seed.
func failedOnce(t testing.TB) (seeds []uint64) {
	t.Helper()
	f, err := os.Open(file(t))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatalf("nightly: open the seeds that failed once: %v", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if seed, _, _ := strings.Cut(lines.Text(), " "); seed != "" {
			seeds = append(seeds, parse(t, file(t), seed))
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatalf("nightly: read the seeds that failed once: %v", err)
	}
	return seeds
}

// report prints the seed with which a test has failed. A nightly run also adds it to the test's file.
func report(t testing.TB, seed uint64) {
	t.Helper()
	tag := ""
	if On {
		tag = "-tags nightly "
	}
	t.Logf("the seed is %d: in this package's folder, %s=%d go test %s-run '^%s$' runs it again", seed, oneVariable, seed, tag, t.Name())
	if !On || os.Getenv(oneVariable) != "" {
		return
	}
	if err := writeDown(t, seed); err != nil {
		t.Errorf("nightly: write the seed down: %v", err)
	}
}

func writeDown(t testing.TB, seed uint64) error {
	t.Helper()
	if slices.Contains(failedOnce(t), seed) {
		return nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file(t), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, seed)
	return errors.Join(err, f.Close())
}
