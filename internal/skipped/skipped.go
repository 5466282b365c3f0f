// Package skipped lets the code around a handler know that a message was settled without being handled: it was too old, its type has no
// handler, or the key of its payload was erased.
package skipped

import (
	"context"
	"sync/atomic"
)

type key struct{}

// Mark counts the messages that were skipped in one call of a handler. That is one at most, unless the
// handler gets a batch. It is the context of the call: one object, where context.WithValue would need another one.
type Mark struct {
	context.Context //nolint:containedctx // it is a context

	n atomic.Int64
}

// Value returns the mark itself, and the values of the context around it.
func (m *Mark) Value(of any) any {
	if of == (key{}) {
		return m
	}
	return m.Context.Value(of)
}

// IsSet reports whether a message was skipped.
func (m *Mark) IsSet() bool { return m.n.Load() > 0 }

// Count returns how many messages were skipped.
func (m *Mark) Count() int64 { return m.n.Load() }

// With returns a context that carries a new mark.
func With(ctx context.Context) (context.Context, *Mark) {
	m := &Mark{Context: ctx}
	return m, m
}

// Add counts n skipped messages in the mark that ctx carries, if any.
func Add(ctx context.Context, n int64) {
	if m, ok := ctx.Value(key{}).(*Mark); ok {
		m.n.Add(n)
	}
}

// Is reports whether ctx carries a mark that is set.
func Is(ctx context.Context) bool {
	m, ok := ctx.Value(key{}).(*Mark)
	return ok && m.IsSet()
}
