package otelx

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/oncebox/oncebox/telemetry"
)

// Later is the telemetry of a part that may be made before the destination is known, such as a broker that is connected before its application is
// made. T has the instruments. They are made when they are first needed, because a global provider keeps every instrument for ever.
type Later[T any] struct {
	with func(telemetry.Config) *T
	made atomic.Pointer[T]
	log  atomic.Pointer[slog.Handler] // nil: slog.Default's handler

	mu sync.Mutex
	to telemetry.Config
}

// NewLater returns telemetry that goes to own, where own is set. with makes the instruments.
func NewLater[T any](own telemetry.Config, with func(telemetry.Config) *T) *Later[T] {
	l := &Later[T]{with: with}
	l.Use(own)
	return l
}

// Use sets the destination of logs, traces and metrics that have none yet.
func (l *Later[T]) Use(to telemetry.Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = l.to.Or(to)
	if l.to.Logger != nil {
		h := l.to.Logger.Handler()
		l.log.Store(&h)
	}
	// Instruments made for the former destination are dropped, and made anew when they are needed.
	l.made.Store(nil)
}

// Instruments returns the instruments.
func (l *Later[T]) Instruments() *T {
	if made := l.made.Load(); made != nil {
		return made
	}
	// Two callers may come here at once. Only one makes the instruments, because a provider keeps what was made twice.
	l.mu.Lock()
	defer l.mu.Unlock()
	made := l.made.Load()
	if made == nil {
		made = l.with(l.to)
		l.made.Store(made)
	}
	return made
}

// Logger returns a logger that follows [Later.Use]. So do loggers that are derived from it.
func (l *Later[T]) Logger() *slog.Logger { return slog.New(following{to: &l.log}) }

// following is a log handler that looks up its destination for each record.
type following struct {
	to   *atomic.Pointer[slog.Handler]
	with []func(slog.Handler) slog.Handler
}

// handler repeats all WithAttrs and WithGroup calls on the present destination, in their order. So a logger that was
// derived before Use writes to the new destination as well.
func (f following) handler() slog.Handler {
	h := slog.Default().Handler()
	if to := f.to.Load(); to != nil {
		h = *to
	}
	for _, with := range f.with {
		h = with(h)
	}
	return h
}

func (f following) Enabled(ctx context.Context, level slog.Level) bool {
	return f.handler().Enabled(ctx, level)
}

func (f following) Handle(ctx context.Context, r slog.Record) error {
	return f.handler().Handle(ctx, r)
}

func (f following) WithAttrs(attrs []slog.Attr) slog.Handler {
	return f.and(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

func (f following) WithGroup(name string) slog.Handler {
	return f.and(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

// Clipped, so that two loggers derived from one do not write into the same array.
func (f following) and(with func(slog.Handler) slog.Handler) slog.Handler {
	return following{f.to, append(slices.Clip(f.with), with)}
}
