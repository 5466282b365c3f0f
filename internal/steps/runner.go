package steps

import "context"

// Runner runs the steps of a handler under a lease: of a request (package idempotency), or of a message (package inbox). step.Call finds it.
type Runner interface {
	// Step calls call, which writes to result, and stores result. If an earlier run has stored it, Step reads it into result, which is a pointer, and
	// does not call call.
	Step(ctx context.Context, name string, result any, call func(ctx context.Context, key string) error) error
}

type runnerKey struct{}

// WithRunner returns a context with the runner of a handler.
func WithRunner(ctx context.Context, r Runner) context.Context {
	return context.WithValue(ctx, runnerKey{}, r)
}

// RunnerFrom returns the runner of the innermost handler.
func RunnerFrom(ctx context.Context) (Runner, bool) {
	r, ok := ctx.Value(runnerKey{}).(Runner)
	return r, ok
}
