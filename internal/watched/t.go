// Package watched tests a suite of tests: it runs one of them and returns its complaints.
package watched

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// T stands in for the testing.T of a watched test, and records why the test fails.
type T struct {
	ctx      context.Context //nolint:containedctx // as that of a testing.T
	mu       sync.Mutex
	said     []string
	cleanups []func()
}

// Run runs a test and its cleanups, and returns the reasons for which it failed, "" if it passed. The test's context is
// cancelled before its cleanups, as with a testing.T.
func Run(ctx context.Context, test func(*T)) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &T{ctx: ctx}
	t.do(func() { test(t) })
	cancel()
	for _, fn := range slices.Backward(t.cleanups) {
		t.do(fn)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.said, "\n")
}

// do runs fn in a goroutine, which FailNow can end, and returns when it has ended.
func (t *T) do(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	<-done
}

// Errorf records a failure.
func (t *T) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.said = append(t.said, fmt.Sprintf(format, args...))
}

// FailNow ends the test.
func (t *T) FailNow() { runtime.Goexit() }

// Name returns a fixed name.
func (t *T) Name() string { return "watched" }

// Helper does nothing.
func (t *T) Helper() {}

// Cleanup registers a function to run after the test; the last one runs first.
func (t *T) Cleanup(fn func()) { t.cleanups = append(t.cleanups, fn) }

// Context returns the context of the test.
func (t *T) Context() context.Context { return t.ctx }
