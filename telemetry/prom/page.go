package prom

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

// New returns a provider for telemetry.Config.MeterProvider, and the page with its metrics. It does not set the global provider of OpenTelemetry.
func New() (metric.MeterProvider, http.Handler, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return nil, nil, fmt.Errorf("prom: New: %w", err)
	}
	return sdk.NewMeterProvider(sdk.WithReader(reader)), promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}
