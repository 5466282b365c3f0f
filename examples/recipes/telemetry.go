package recipes

import (
	"log/slog"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/config"
)

// Observe says where logs, metrics and traces go, and returns the page for Prometheus. Call it before oncebox.New.
func Observe(cfg *config.Config, traces trace.TracerProvider) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return nil, err
	}
	cfg.Telemetry.MeterProvider = metric.NewMeterProvider(metric.WithReader(reader))
	cfg.Telemetry.TracerProvider = traces
	cfg.Telemetry.Logger = slog.New(slog.NewJSONHandler(os.Stderr, nil))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}
