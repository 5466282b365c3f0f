package messaging

import (
	"log/slog"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Telemetry is where logs, traces and metrics of a program go. What is nil goes where it goes without it.
type Telemetry struct {
	Logger         *slog.Logger
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
}

// Observed is a broker that logs, traces or measures. It is connected before the application is made, and is told then where its telemetry goes,
// as far as its own configuration does not say so. What it traces and measures before that goes to the global providers.
type Observed interface {
	Observe(t Telemetry)
}
