// Package answer repeats calls until the broker answers, and sorts its answers into kinds. Packages pulsar and topics share it.
//
// Read first: insist.go:Insist, then errors.go:Lasts.
package answer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/oncebox/oncebox/internal/adapters"
)

// Insist calls fn until it succeeds, fails for good, or ctx is done. fn is not called again before it has returned.
func Insist[T any](ctx context.Context, background *sync.WaitGroup, fn func() (T, error), undo func(T)) (T, error) {
	last := errors.New("the broker has not answered yet")
	for attempt := 1; ; attempt++ {
		value, returned, err := Once(ctx, background, fn, undo)
		switch {
		case !returned:
			return value, fmt.Errorf("%w; the last error was: %w", err, last)
		case err == nil || IsTopicTrouble(err) || IsNotLetIn(err):
			return value, err
		}
		last = err
		if err := adapters.Pause(ctx, attempt); err != nil {
			return value, fmt.Errorf("%w; the last error was: %w", err, last)
		}
	}
}

// Once calls fn and returns its result, or returned false if ctx ended first. A call of Pulsar's client cannot be cancelled: after ctx has
// ended it goes on in the background, and undo reverses its result.
func Once[T any](ctx context.Context, background *sync.WaitGroup, fn func() (T, error), undo func(T)) (value T, returned bool, err error) {
	type result struct {
		value T
		err   error
	}
	// Unbuffered: either the result is received here, or the sending goroutine sees that ctx is done and undoes it.
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

// Clear calls fn until the broker accepts or refuses: a broker that has just started fails now and then.
func Clear(ctx context.Context, fn func() error) error {
	for attempt := 1; ; attempt++ {
		err := fn()
		if err == nil || Lasts(err) || adapters.Pause(ctx, attempt) != nil {
			return err
		}
	}
}
