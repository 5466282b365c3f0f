package telemetry

import (
	"log/slog"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Config sets where logs, traces and metrics go.
type Config struct {
	// Logger receives all log lines. Default: slog.Default().
	Logger *slog.Logger
	// TracerProvider creates the spans. Default: the global provider of OpenTelemetry.
	TracerProvider trace.TracerProvider
	// MeterProvider creates the metrics. Default: the global provider of OpenTelemetry.
	MeterProvider metric.MeterProvider
}

// Or returns c with its unset fields taken from other.
func (c Config) Or(other Config) Config {
	if c.Logger == nil {
		c.Logger = other.Logger
	}
	if c.TracerProvider == nil {
		c.TracerProvider = other.TracerProvider
	}
	if c.MeterProvider == nil {
		c.MeterProvider = other.MeterProvider
	}
	return c
}
