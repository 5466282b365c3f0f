package messaging

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/skipped"
)

// Middleware wraps a handler: it returns a handler that does something before it calls next, afterwards, or instead of calling it. Its result
// decides what becomes of the message, like the result of a handler. It works without the inbox, too: give it to [Router.Use], to the option
// inbox.Use of one consumer, to inbox.Config.Middleware for all of them, or to [Chain].
//
//	func Timed(next messaging.Handler) messaging.Handler {
//		return messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
//			defer func(began time.Time) { observe(m.Type, time.Since(began)) }(time.Now())
//			return next.Handle(ctx, m)
//		})
//	}
type Middleware func(next Handler) Handler

// Chain returns h within middleware. The first one is the outermost: it is called first and returns last. The result is no [BatchHandler], also if h
// is one.
func Chain(h Handler, middleware ...Middleware) Handler {
	for _, wrap := range slices.Backward(middleware) {
		h = wrap(h)
	}
	return h
}

// Skip settles the message of ctx although no handler has handled it. It returns nil, so that a [Middleware] or a handler can end with
//
//	return messaging.Skip(ctx)
//
// The message does not come again: package inbox records it as it records a handled message. Metrics count it with the outcome "skipped".
func Skip(ctx context.Context) error {
	skipped.Add(ctx, 1)
	return nil
}

// Skipped reports whether a handler has called [Skip] for the message of ctx. A [Middleware] can ask this after its next handler has returned nil.
// The result is false outside of a [Consumer] and of package inbox.
func Skipped(ctx context.Context) bool { return skipped.Is(ctx) }

// MaxAge skips messages whose event occurred more than d ago, by the clock of this process: see [Skip]. Messages without a time are handled. The age
// is taken at each try, so a message that has waited for its next try, or for an operator, may be skipped, and so may a delayed event. Do not use it
// for a read model: a rebuild would skip old events.
//
// It panics if d is not more than 0, so that this mistake is found at the start of the program.
func MaxAge(d time.Duration) Middleware {
	if d <= 0 {
		panic(fmt.Sprintf("messaging: MaxAge(%s): give an age of more than 0", d))
	}
	return func(next Handler) Handler {
		return HandlerFunc(func(ctx context.Context, m *Message) error {
			if !m.OccurredAt.IsZero() && time.Since(m.OccurredAt) > d {
				return Skip(ctx)
			}
			return next.Handle(ctx, m)
		})
	}
}

// Logging logs each message with the time that its handler took: at level Info if it was handled or skipped, at level Warn with the error if it
// failed. It does not log a panic, because the consumer does. A nil logger is slog.Default().
//
// Without this middleware a consumer logs only failures.
func Logging(logger *slog.Logger) Middleware {
	log := otelx.Logger(logger)
	return func(next Handler) Handler {
		return HandlerFunc(func(ctx context.Context, m *Message) error {
			began := time.Now()
			within, mark := skipped.With(ctx)
			err := next.Handle(within, m)
			skipped.Add(ctx, mark.Count())
			level, text := slog.LevelInfo, "oncebox: message handled"
			attrs := []slog.Attr{
				slog.String("topic", m.Topic), slog.String("type", m.Type), slog.String("id", m.ID), slog.String("tenant", m.TenantID),
				slog.Int("try", m.Attempt), slog.Duration("took", time.Since(began)),
			}
			switch {
			case err != nil:
				level, text = slog.LevelWarn, "oncebox: handling a message failed"
				attrs = append(attrs, slog.Any("error", err))
			case mark.IsSet():
				text = "oncebox: message settled without calling its handler"
			}
			log.LogAttrs(ctx, level, text, attrs...)
			return err
		})
	}
}

// Recover turns a panic of the handler into the error that fn returns. Use it to report the panic to a service that collects crashes, or to make the
// message a dead letter at once:
//
//	messaging.Recover(func(ctx context.Context, m *messaging.Message, p *messaging.PanicError) error {
//		return messaging.Permanent(p)
//	})
//
// The handler's writes in its unit of work are rolled back, whatever fn returns; if fn returns nil, the error is p. Without Recover the
// error is p, too.
func Recover(fn func(ctx context.Context, m *Message, p *PanicError) error) Middleware {
	return func(next Handler) Handler {
		return HandlerFunc(func(ctx context.Context, m *Message) error {
			err := call(ctx, next, m)
			p, panicked := err.(*PanicError) //nolint:errorlint // the panic of next itself, and none that next has made an error of
			if !panicked {
				return err
			}
			if err := fn(ctx, m, p); err != nil {
				return err
			}
			return p
		})
	}
}
