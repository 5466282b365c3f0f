// Package calls counts the calls of a handler to other services, so that each can have a key of its own that is the same when the handler is run
// again.
package calls

import (
	"context"
	"sync"
)

type contextKey struct{}

// run counts the calls in one run of a handler, or of a step of it.
type run struct {
	step string

	mu   sync.Mutex
	made map[string]int
}

// Begin returns a context for a new run of a handler, in which no call was counted yet.
func Begin(ctx context.Context) context.Context { return context.WithValue(ctx, contextKey{}, &run{}) }

// Within returns a context for a step of the run in ctx. The step counts its own calls.
func Within(ctx context.Context, step string) context.Context {
	return context.WithValue(ctx, contextKey{}, &run{step: step})
}

// Next counts a call of this kind. It returns the step that it belongs to, and its number among the calls of the kind,
// from 1. ok is false if ctx belongs to no run.
func Next(ctx context.Context, kind string) (step string, nth int, ok bool) {
	r, ok := ctx.Value(contextKey{}).(*run)
	if !ok {
		return "", 0, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.made == nil {
		r.made = map[string]int{}
	}
	r.made[kind]++
	return r.step, r.made[kind], true
}
