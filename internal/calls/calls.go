// Package calls counts the calls of a handler to other services, so that each can have a key of its own that is the same when the handler is run
// again.
package calls

import (
	"context"
	"sync"
)

type contextKey struct{}

// run is one run of a handler, or of a step in it.
type run struct {
	step string

	mu   sync.Mutex
	made map[string]int
}

// Begin returns the context of a run of a handler that has made no calls yet.
func Begin(ctx context.Context) context.Context { return context.WithValue(ctx, contextKey{}, &run{}) }

// Within returns the context of a run of one of its steps.
func Within(ctx context.Context, step string) context.Context {
	return context.WithValue(ctx, contextKey{}, &run{step: step})
}

// Next counts a call and returns its step, and its number among the calls of this kind, from 1 on. false: ctx is not that of a run.
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
