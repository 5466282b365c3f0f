package envelope

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/otelx"
)

// trace creates a span for the event, if ctx has a sampled trace, and writes its trace context into the metadata.
// Without a span in ctx it does nothing.
func (m *Maker) trace(ctx context.Context, env *event.Envelope) {
	if m.Tracer != nil && trace.SpanContextFromContext(ctx).IsSampled() {
		var span trace.Span
		ctx, span = m.Tracer.Start(ctx, otelx.OperationCreate.SpanName(env.Topic), trace.WithSpanKind(trace.SpanKindProducer),
			trace.WithAttributes(otelx.OperationCreate.Attributes(env.Topic)...),
			trace.WithAttributes(attribute.String("messaging.message.id", env.ID), attribute.String("oncebox.event.type", env.Type)))
		defer span.End()
	}
	// Without a span of its own the event carries the one of ctx, so its consumers still continue the trace.
	otelx.Inject(ctx, env.Metadata)
}
