package envelope

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/oncebox/oncebox/event"
)

func TestEventIsCreatedInASpanOfItsOwn(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
	m := &Maker{Source: "shop", DefaultTenantID: "default", Tracer: tracer}
	ctx, request := tracer.Start(t.Context(), "POST /orders")
	request.End() // as that of a nested unit's caller may be when the outermost one flushes

	env, err := m.Payload(ctx, "order", "placed", nil)
	require.NoError(t, err)
	created := spans.Ended()[1]
	require.Equal(t, "create order", created.Name())
	require.Equal(t, trace.SpanKindProducer, created.SpanKind())
	require.Equal(t, request.SpanContext().SpanID(), created.Parent().SpanID())
	require.Equal(t, "00-"+request.SpanContext().TraceID().String()+"-"+created.SpanContext().SpanID().String()+"-01", env.Metadata[event.TraceParent])

	own := event.Metadata{event.TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	env, err = m.Payload(ctx, "order", "placed", []event.AddOption{func(e *event.Envelope) { e.Metadata = own }})
	require.NoError(t, err)
	require.Equal(t, own[event.TraceParent], env.Metadata[event.TraceParent], "the event's own wins")
	require.Len(t, spans.Ended(), 2)
}

// A trace that is not sampled goes on, and makes no span.
func TestTraceThatIsNotSampled(t *testing.T) {
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	spans := tracetest.NewSpanRecorder()
	m := &Maker{
		Source: "shop", DefaultTenantID: "default",
		Tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithSampler(sdktrace.AlwaysSample())).Tracer("test"),
	}
	env, err := m.Payload(trace.ContextWithSpanContext(t.Context(), sc), "order", "placed", nil)
	require.NoError(t, err)
	require.Equal(t, "00-01000000000000000000000000000000-0200000000000000-00", env.Metadata[event.TraceParent])
	require.Empty(t, spans.Started())
}

func TestNoTraceCostsNothing(t *testing.T) {
	m := &Maker{Tracer: noop.NewTracerProvider().Tracer("test")}
	env := event.Envelope{Metadata: event.Metadata{}}
	ctx := context.Background()
	require.Zero(t, testing.AllocsPerRun(1000, func() { m.trace(ctx, &env) }))
	require.Empty(t, env.Metadata)
}
