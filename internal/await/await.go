// Package await waits for events in tests.
//
// A wait has no pace: it ends when what is waited for is there, however busy the machine is. Its limit is reached only where
// something is broken. A test that has waited for a minute prints what it waits for, and once more each minute; under make test
// and make nightly this is seen at once.
package await

import (
	"context"
	"fmt"
	"os"
	"time"
)

const (
	// limit is the longest wait, which only a broken test reaches.
	limit = 10 * time.Minute
	// poll is the pause between the first two looks at a condition, and slowest the longest pause. A look
	// is often an unprepared query: with equal pauses the looks took most of the time of a busy machine,
	// and delayed what they waited for.
	poll, slowest = 5 * time.Millisecond, 100 * time.Millisecond
	// word is the time between two lines about the same wait.
	word = time.Minute
)

// TB has the methods of testing.TB that this package needs.
type TB interface {
	Helper()
	Name() string
	Errorf(format string, args ...any)
	FailNow()
}

// True waits until ok returns true. It calls ok in the test's own goroutine, so ok may fail the test. what and args
// describe the awaited event.
func True(t TB, ok func() bool, what string, args ...any) {
	t.Helper()
	w := begin(t, what, args)
	defer w.end()
	for !ok() {
		if !w.pause(pace(time.Since(w.since))) {
			w.fail(t)
		}
	}
}

// Nil waits until try returns nil. A wait of more than a minute, and a wait in vain, print the last error. It calls try in
// the test's own goroutine, so try may fail the test. what and args describe the awaited event.
func Nil(t TB, try func() error, what string, args ...any) {
	t.Helper()
	w := begin(t, what, args)
	defer w.end()
	what = w.what
	for {
		err := try()
		if err == nil {
			return
		}
		w.what = what + ": " + err.Error()
		if !w.pause(pace(time.Since(w.since))) {
			w.fail(t)
		}
	}
}

// pace returns the pause before the next look: a tenth of the time waited so far.
func pace(waited time.Duration) time.Duration { return min(max(waited/10, poll), slowest) }

// Receive waits for a value from a channel. A closed channel gives the zero value.
func Receive[T any](t TB, from <-chan T, what string, args ...any) (v T) {
	t.Helper()
	w := begin(t, what, args)
	defer w.end()
	for {
		select {
		case v = <-from:
			return v
		case <-w.words.C:
			w.say()
		case <-w.limit.C:
			w.fail(t)
		}
	}
}

// Context returns a context for calls that wait by themselves. It ends after the limit of a wait; call done
// when they have returned.
func Context(parent context.Context, t TB, what string, args ...any) (ctx context.Context, done context.CancelFunc) {
	t.Helper()
	w := begin(t, what, args)
	ctx, done = context.WithTimeout(parent, limit)
	go func() {
		defer w.end()
		for {
			select {
			case <-w.words.C:
				w.say()
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, done
}

type wait struct {
	test  string
	what  string
	since time.Time
	words *time.Ticker
	limit *time.Timer
}

func begin(t TB, what string, args []any) *wait {
	if len(args) > 0 {
		what = fmt.Sprintf(what, args...)
	}
	return &wait{test: t.Name(), what: what, since: time.Now(), words: time.NewTicker(word), limit: time.NewTimer(limit)}
}

func (w *wait) end() {
	w.words.Stop()
	w.limit.Stop()
}

// pause waits for d. It returns false if the limit is reached.
func (w *wait) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-w.words.C:
		w.say()
	case <-w.limit.C:
		return false
	}
	return true
}

func (w *wait) say() {
	fmt.Fprintf(os.Stderr, "%s has waited %s for: %s\n", w.test, time.Since(w.since).Round(time.Second), w.what)
}

func (w *wait) fail(t TB) {
	t.Helper()
	t.Errorf("waited %s in vain for: %s", limit, w.what)
	t.FailNow()
}
