package shop

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

// newMetrics returns a provider for all packages and the page on which Prometheus reads what they measured. The registry
// is its own, so that several services in one test do not meet.
func newMetrics() (metric.MeterProvider, http.Handler, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return nil, nil, fmt.Errorf("make the metrics exporter: %w", err)
	}
	return sdk.NewMeterProvider(sdk.WithReader(reader)), promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}
