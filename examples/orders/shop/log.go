package shop

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
)

// storyHandler adds to each log line the request that it belongs to: trace and correlation id of the context.
// Handlers of messages have those of the request that has caused the event, so one id finds the lines of all processes.
type storyHandler struct{ slog.Handler }

// Handle adds the attributes and passes the line on.
func (h storyHandler) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()))
	}
	if id := event.MetadataFrom(ctx)[event.CorrelationID]; id != "" {
		r.AddAttrs(slog.String("correlation_id", id))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs keeps the handler around.
func (h storyHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return storyHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup keeps the handler around.
func (h storyHandler) WithGroup(name string) slog.Handler {
	return storyHandler{h.Handler.WithGroup(name)}
}
