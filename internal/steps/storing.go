package steps

import "context"

type (
	storingKey struct{}
	silentKey  struct{}
)

// Storing marks the context of the statement that stores the result of a call. It is for tests that end a process between the call and that statement.
func Storing(ctx context.Context) context.Context {
	if ctx.Value(silentKey{}) != nil {
		return ctx
	}
	return context.WithValue(ctx, storingKey{}, true)
}

// Silent returns a context for a step that makes no call: [Storing] leaves it as it is.
func Silent(ctx context.Context) context.Context { return context.WithValue(ctx, silentKey{}, true) }

// IsStoring reports whether a statement has such a context.
func IsStoring(ctx context.Context) bool { return ctx.Value(storingKey{}) != nil }
