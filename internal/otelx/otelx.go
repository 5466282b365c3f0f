// Package otelx fills in the defaults of the three things every Config carries: logger, tracer and meter.
package otelx

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/internal/quietlog"
)

const module = "github.com/oncebox/oncebox/"

// Logger returns l, or slog.Default() for nil, as a logger that writes a repeated failure once a minute, unless l has
// another interval: see package quietlog.
func Logger(l *slog.Logger) *slog.Logger {
	return quietlog.New(l, quietlog.Interval)
}

// Tracer returns the tracer of a package of oncebox, from the global provider if p is nil.
func Tracer(p trace.TracerProvider, pkg string) trace.Tracer {
	if p == nil {
		p = otel.GetTracerProvider()
	}
	return p.Tracer(module + pkg)
}

// Meter returns the meter of a package of oncebox, from the global provider if p is nil.
func Meter(p metric.MeterProvider, pkg string) metric.Meter {
	if p == nil {
		p = otel.GetMeterProvider()
	}
	return p.Meter(module + pkg)
}

// Counter returns a counter.
func Counter(m metric.Meter, name, description string) metric.Int64Counter {
	return made[metric.Int64Counter](noop.Int64Counter{})(m.Int64Counter(name, metric.WithDescription(description)))
}

// made returns the instrument, or an idle one if the provider could not make it: a metric must
// never stop the work.
func made[T any](nothing T) func(instrument T, err error) T {
	return func(instrument T, err error) T {
		if err != nil || any(instrument) == nil {
			handle(err)
			return nothing
		}
		return instrument
	}
}

// Started returns a counter that shows 0 before anything is counted, for each of the options of [Outcomes], or, with nil, for the series without
// attributes. Otherwise the first count would be the first value of its series, and increase() of Prometheus would not see it.
func Started(m metric.Meter, name, description string, options map[string][]metric.AddOption) metric.Int64Counter {
	c := Counter(m, name, description)
	for _, o := range options {
		c.Add(context.Background(), 0, o...)
	}
	if options == nil {
		c.Add(context.Background(), 0)
	}
	return c
}

// Inject writes the trace context of ctx into carrier, in the format of W3C Trace Context. It replaces a trace context that is there: the state of
// another trace never stays beside this one's parent. Without a span in ctx the carrier is left as it is.
func Inject(ctx context.Context, carrier map[string]string) {
	// A tracestate belongs to one traceparent (W3C Trace Context, section 3.3). Inject would leave the old
	// one if the new trace has none.
	if trace.SpanContextFromContext(ctx).IsValid() {
		delete(carrier, "tracestate")
	}
	propagation.TraceContext{}.Inject(ctx, propagation.MapCarrier(carrier))
}

// Extract returns the trace context in carrier. It is invalid if there is none.
func Extract(carrier map[string]string) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier(carrier))
	return trace.SpanContextFromContext(ctx)
}

// Outcomes returns the options with which each outcome is counted. They are made once, because it costs more to make a set of
// attributes than to count.
func Outcomes(outcomes ...string) map[string][]metric.AddOption {
	options := make(map[string][]metric.AddOption, len(outcomes))
	for _, outcome := range outcomes {
		options[outcome] = []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(attribute.String("outcome", outcome)))}
	}
	return options
}
