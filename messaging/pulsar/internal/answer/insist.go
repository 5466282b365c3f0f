// Package answer asks the broker until it answers, and tells the kinds of its answers apart. Both are shared by package pulsar and package topics.
//
// Read first: insist.go:Insist, then errors.go:Lasts.
package answer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/oncebox/oncebox/retry"
)

// Insist calls fn until it succeeds, fails for good, or ctx is done. fn is not called again before it has returned.
func Insist[T any](ctx context.Context, background *sync.WaitGroup, fn func() (T, error), undo func(T)) (T, error) {
	last := errors.New("not answered yet")
	for attempt := 1; ; attempt++ {
		value, returned, err := Once(ctx, background, fn, undo)
		switch {
		case !returned:
			return value, fmt.Errorf("%w, last: %w", err, last)
		case err == nil || IsTopicTrouble(err) || IsNotLetIn(err):
			return value, err
		}
		last = err
		if err := Pause(ctx, attempt); err != nil {
			return value, fmt.Errorf("%w, last: %w", err, last)
		}
	}
}

// Once calls fn, and returns its result, or returned false if ctx was done before. The calls of Pulsar's client cannot be stopped: such a call goes
// on in the background then, and undo takes its result back.
func Once[T any](ctx context.Context, background *sync.WaitGroup, fn func() (T, error), undo func(T)) (value T, returned bool, err error) {
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

// Clear calls fn until the broker says yes or no: a broker that has just started fails now and then.
func Clear(ctx context.Context, fn func() error) error {
	for attempt := 1; ; attempt++ {
		err := fn()
		if err == nil || Lasts(err) || Pause(ctx, attempt) != nil {
			return err
		}
	}
}

// Pause waits a little longer with each attempt. It returns an error if ctx is done first.
func Pause(ctx context.Context, attempt int) error {
	return retry.Policy{Delay: 100 * time.Millisecond, MaxDelay: time.Second}.Wait(ctx, attempt)
}
