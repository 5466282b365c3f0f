// Command suite runs the tests of this module and of those within it, and says what it uses, how long it takes and what failed:
//
//	go run ./internal/suite            # make test
//	go run ./internal/suite -nightly   # make nightly
//
// It starts one PostgreSQL and one Pulsar for all packages, or uses those of DATABASE_URL and PULSAR_URL. While tests run it
// prints the package that has ended, the output of each test that failed, what a test waits for after a minute, and each minute
// the tests that have run for longer than two. At the end stands a table of the packages with their times.
//
// A nightly run draws its seed, or takes that of NIGHTLY_SEED, and ends with one line:
//
//	nightly seed=8157 rounds=120394 failed=0
//
// rounds is how often tests of chance have drawn, failed is the number of tests that failed. The exit code is 1 if there is one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/internal/devenv"
)

func main() {
	nightly := flag.Bool("nightly", false, "all tests at full size, with the race detector and fresh seeds")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *nightly); err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(1)
	}
}

// errFailed ends a run whose failures were all reported already.
var errFailed = errors.New("tests failed, see above")

func run(ctx context.Context, out io.Writer, nightly bool) (err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	rows, err := testSteps()
	if err != nil {
		return err
	}
	var seed string
	if nightly {
		if seed = os.Getenv(seedVariable); seed == "" {
			seed = strconv.FormatUint(rand.Uint64N(1_000_000), 10) // short, so that a person can type it
		}
		if rows, err = nightlySteps(ctx, seed); err != nil {
			return err
		}
	}
	sayWhatIsUsed(out, rows, seed)
	begun := time.Now()
	servers, err := devenv.Start(ctx, &devenv.Options{Out: out, Volatile: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.Stop()) }()
	fmt.Fprintf(out, "servers are up after %s\n", seconds(time.Since(begun)))

	r := newReport(out)
	defer func() { // also after an interruption
		r.printTimes(time.Since(begun))
		if nightly {
			fmt.Fprintf(out, "nightly seed=%s rounds=%d failed=%d\n", seed, r.rounds, r.failed)
		}
	}()
	if err := runRows(ctx, rows, servers.Env(), r); err != nil {
		return err
	}
	if r.failed > 0 {
		return errFailed
	}
	return nil
}

// runRows runs the rows at the same time, and the steps of each row one after the other. If a step cannot
// be started, all of them end.
func runRows(ctx context.Context, rows [][]step, env []string, r *report) error {
	defer r.watch()()
	all, ctx := errgroup.WithContext(ctx)
	for _, row := range rows {
		all.Go(func() error {
			for _, s := range row {
				if err := s.run(ctx, env, r); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return all.Wait()
}

func sayWhatIsUsed(out io.Writer, rows [][]step, seed string) {
	fmt.Fprintf(out, "%s, %d cores\n", runtime.Version(), runtime.NumCPU())
	if seed != "" {
		fmt.Fprintf(out, "seed: %s=%s\n", seedVariable, seed)
	}
	for i, row := range rows {
		for j, s := range row {
			fmt.Fprintf(out, "row %d, step %d of %d: %s: go %s\n", i+1, j+1, len(row), s.what, strings.Join(s.args, " "))
		}
	}
}

func seconds(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }
