// Package telemetry says where logs, traces and metrics go. The Config of each package that has any of them has a field Telemetry.
//
// Read first: config.go: [Config].
package telemetry

import (
	"log/slog"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Config is where logs, traces and metrics go.
type Config struct {
	// Logger takes warnings and errors. Default: slog.Default().
	Logger *slog.Logger
	// TracerProvider makes the spans. Default: the global one of OpenTelemetry.
	TracerProvider trace.TracerProvider
	// MeterProvider takes the metrics. Default: the global one of OpenTelemetry.
	MeterProvider metric.MeterProvider
}

// Or returns c, with the fields of other where c has none.
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
