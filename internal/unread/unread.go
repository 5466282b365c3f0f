// Package unread tells the code around a handler that a message was settled without being handled: because its type has no handler, or the
// key of its payload was erased. So the handler cannot have forgotten its unit of work.
package unread

import "context"

type key struct{}

// Mark is set when a message was settled unread. It belongs to one call of a handler.
type Mark struct{ set bool }

// IsSet tells whether it was set.
func (m *Mark) IsSet() bool { return m.set }

// With returns a context that carries a new mark.
func With(ctx context.Context) (context.Context, *Mark) {
	m := &Mark{}
	return context.WithValue(ctx, key{}, m), m
}

// Set sets the mark that ctx carries, if any.
func Set(ctx context.Context) {
	if m, ok := ctx.Value(key{}).(*Mark); ok {
		m.set = true
	}
}
