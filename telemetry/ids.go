package telemetry

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
)

// WithIDs returns a handler that adds trace_id and correlation_id of the context to each log line. A handler of messages has the ids of the request
// that has caused the event, so one id finds the lines of all processes.
func WithIDs(h slog.Handler) slog.Handler { return withIDs{h} }

// withIDs adds the ids of the context.
type withIDs struct{ slog.Handler }

// Unwrap returns the wrapped handler.
func (h withIDs) Unwrap() slog.Handler { return h.Handler }

// Handle adds the ids and passes the line on.
func (h withIDs) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()))
	}
	if id := event.MetadataFrom(ctx)[event.CorrelationID]; id != "" {
		r.AddAttrs(slog.String("correlation_id", id))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs returns a handler that adds the ids, too.
func (h withIDs) WithAttrs(attrs []slog.Attr) slog.Handler {
	return withIDs{h.Handler.WithAttrs(attrs)}
}

// WithGroup returns a handler that adds the ids, too.
func (h withIDs) WithGroup(name string) slog.Handler { return withIDs{h.Handler.WithGroup(name)} }
