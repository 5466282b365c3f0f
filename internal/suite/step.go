package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// seedVariable is read by package nightly.
const seedVariable = "NIGHTLY_SEED"

const everything = "./..."

// step is one call of go.
type step struct {
	what string
	args []string
	env  []string
}

// testSteps are those of make test.
func testSteps() []step {
	return []step{
		// More packages than cores: most tests wait.
		{what: "all packages", args: []string{"test", "-json", "-count=1", "-timeout=25m", "-p=4", everything}},
		{what: "the benchmarks compile", args: []string{"-C", "bench", "vet", everything}},
	}
}

// nightlySteps are those of make nightly.
func nightlySteps(seed string) []step {
	env := []string{seedVariable + "=" + seed}
	return []step{
		{
			what: "all packages at full size, with the race detector", env: env,
			args: []string{"test", "-json", "-race", "-tags=nightly", "-count=1", "-timeout=3h", "-p=2", everything},
		},
		{what: "the benchmarks compile", args: []string{"-C", "bench", "vet", everything}},
	}
}

// run reports what the tests do, and returns an error if they cannot be run.
func (s step) run(ctx context.Context, env []string, r *report) error {
	cmd := exec.CommandContext(ctx, "go", s.args...)
	cmd.Env = append(append(os.Environ(), env...), s.env...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("%s: %w", s.what, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s: start go: %w", s.what, err)
	}
	before := r.failed
	readErr := r.read(out)
	err = cmd.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", s.what, ctx.Err())
	}
	if readErr != nil {
		return fmt.Errorf("%s: read what the tests say: %w", s.what, readErr)
	}
	if err != nil && r.failed == before {
		r.fail(fmt.Sprintf("%s: %v", s.what, err))
	}
	return nil
}
