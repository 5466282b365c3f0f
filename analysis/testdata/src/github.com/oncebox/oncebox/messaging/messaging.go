// Package messaging stands for the real one.
package messaging

import "context"

type Message struct{}

type Handler interface {
	Handle(ctx context.Context, m *Message) error
}

type HandlerFunc func(ctx context.Context, m *Message) error

func (f HandlerFunc) Handle(ctx context.Context, m *Message) error { return f(ctx, m) }

type Router struct{}

func (*Router) Handle(ctx context.Context, m *Message) error { return nil }

func Handle[T any](r *Router, fn func(ctx context.Context, e T) error) {}
