package otelx_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/internal/otelx"
)

func TestDefaults(t *testing.T) {
	quiet := otelx.Logger(slog.New(slog.DiscardHandler))
	require.Same(t, quiet, otelx.Logger(quiet), "wrapped once")
	require.NotNil(t, otelx.Logger(nil), "the program's default")
	require.NotNil(t, otelx.Tracer(nil, "uow"), "the global provider")
	require.NotNil(t, otelx.Meter(nil, "uow"), "the global provider")
}

func TestScopesAreNamedAfterThePackage(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	_, span := otelx.Tracer(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)), "uow").Start(t.Context(), "a span")
	span.End()
	require.Equal(t, "github.com/oncebox/oncebox/uow", spans.GetSpans()[0].InstrumentationScope.Name)

	reader := sdkmetric.NewManualReader()
	meter := otelx.Meter(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), "uow")
	otelx.Counter(meter, "oncebox.uow.units", "Units").Add(t.Context(), 1)
	var got metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &got))
	require.Equal(t, "github.com/oncebox/oncebox/uow", got.ScopeMetrics[0].Scope.Name)
	require.Equal(t, "oncebox.uow.units", got.ScopeMetrics[0].Metrics[0].Name)
}

// brokenMeter is a provider's meter that cannot make counters.
type brokenMeter struct{ metricnoop.Meter }

func (brokenMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return nil, errors.New("no counters here")
}

func TestCounterThatCannotBeMadeCountsNothing(t *testing.T) {
	var handled error
	before := otel.GetErrorHandler()
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { handled = err }))
	defer otel.SetErrorHandler(before)

	c := otelx.Counter(brokenMeter{}, "x", "")
	require.ErrorContains(t, handled, "no counters here")
	require.NotPanics(t, func() { c.Add(t.Context(), 1) })
}

func TestTraceContextRoundTrip(t *testing.T) {
	state, err := trace.ParseTraceState("vendor=1")
	require.NoError(t, err)
	want := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state, Remote: true,
	})
	carrier := map[string]string{}
	otelx.Inject(trace.ContextWithSpanContext(t.Context(), want), carrier)
	require.Equal(t, "00-01000000000000000000000000000000-0200000000000000-01", carrier["traceparent"])
	require.True(t, want.Equal(otelx.Extract(carrier)), "%v", carrier)

	require.False(t, otelx.Extract(nil).IsValid())
	require.False(t, otelx.Extract(map[string]string{"traceparent": "rubbish"}).IsValid())
}

func TestInjectReplacesTheStateOfAnotherTrace(t *testing.T) {
	carrier := map[string]string{"traceparent": "old", "tracestate": "old=1"}
	otelx.Inject(context.Background(), carrier)
	require.Equal(t, map[string]string{"traceparent": "old", "tracestate": "old=1"}, carrier, "no span: left as it is")

	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	otelx.Inject(trace.ContextWithSpanContext(context.Background(), sc), carrier)
	require.NotContains(t, carrier, "tracestate")
}
