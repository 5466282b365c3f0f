// Package calls counts the calls of a handler to other services, so that each can have a key of its own that is the same when the handler is run
// again.
package calls

import (
	"context"
	"sync"
)

type contextKey struct{}

// run counts the calls in one run of a handler, or of a step of it. It is the context of the run.
type run struct {
	context.Context //nolint:containedctx // it is a context

	step string

	mu   sync.Mutex
	made map[string]int
}

// Value returns the run itself, and the values of the context around it.
func (r *run) Value(key any) any {
	if key == (contextKey{}) {
		return r
	}
	return r.Context.Value(key)
}

// Begin returns a context for a new run of a handler, in which no call was counted yet.
func Begin(ctx context.Context) context.Context { return &run{Context: ctx} }

// Within returns a context for a step of the run in ctx. The step counts its own calls.
func Within(ctx context.Context, step string) context.Context {
	return &run{Context: ctx, step: step}
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
