package pulsar

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/oncebox/oncebox/retry"
)

// insist calls fn until it succeeds, fails for good, or ctx is done. fn is not called again before it returned.
func insist[T any](ctx context.Context, background *sync.WaitGroup, fn func() (T, error), undo func(T)) (T, error) {
	last := errors.New("not answered yet")
	for attempt := 1; ; attempt++ {
		value, returned, err := once(ctx, background, fn, undo)
		switch {
		case !returned:
			return value, fmt.Errorf("%w, last: %w", err, last)
		case err == nil || isTopicTrouble(err) || isNotLetIn(err):
			return value, err
		}
		last = err
		if err := pause(ctx, attempt); err != nil {
			return value, fmt.Errorf("%w, last: %w", err, last)
		}
	}
}

// once calls fn, and returns what it returned, or that ctx was done before. The client's calls cannot be told to stop: this one goes
// on in the background then, and what it brings is undone.
func once[T any](ctx context.Context, background *sync.WaitGroup, fn func() (T, error), undo func(T)) (value T, returned bool, err error) {
	type result struct {
		value T
		err   error
	}
	// Unbuffered: either the result is taken, or the call that brings it sees that ctx is done.
	done := make(chan result)
	background.Go(func() {
		value, err := fn()
		select {
		case done <- result{value, err}:
		case <-ctx.Done():
			if err == nil {
				undo(value)
			}
		}
	})
	select {
	case r := <-done:
		return r.value, true, r.err
	case <-ctx.Done():
		return value, false, context.Cause(ctx)
	}
}

// pause waits a little longer with each attempt.
func pause(ctx context.Context, attempt int) error {
	return retry.Policy{Delay: 100 * time.Millisecond, MaxDelay: time.Second}.Wait(ctx, attempt)
}
