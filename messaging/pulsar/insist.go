package pulsar

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/backoff"
)

// insist calls fn until it succeeds, fails for good, or ctx is done. The client's calls cannot be told to stop: one that
// is under way then goes on in the background, and what it brings is undone. fn is not called again before it returned.
func insist[T any](ctx context.Context, background *sync.WaitGroup, fn func() (T, error), undo func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	last := errors.New("not answered yet")
	for attempt := 1; ; attempt++ {
		// Unbuffered: either the result is taken, or the one who brings it sees that ctx is done.
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
			if r.err == nil || isTopicTrouble(r.err) || isNotLetIn(r.err) {
				return r.value, r.err
			}
			last = r.err
		case <-ctx.Done():
			return none, fmt.Errorf("%w, last: %w", context.Cause(ctx), last)
		}
		if err := pause(ctx, attempt); err != nil {
			return none, fmt.Errorf("%w, last: %w", err, last)
		}
	}
}

// pause waits a little longer with each attempt.
func pause(ctx context.Context, attempt int) error {
	return backoff.Wait(ctx, backoff.Jitter(backoff.Exponential(attempt, 100*time.Millisecond, time.Second)))
}
