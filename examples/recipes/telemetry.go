package recipes

import (
	"log/slog"
	"net/http"
	"os"

	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/telemetry/prom"
)

// Observe says where logs, metrics and traces go, and returns the page for Prometheus. Call it before oncebox.New.
func Observe(cfg *config.Config, traces trace.TracerProvider) (http.Handler, error) {
	meters, page, err := prom.New()
	if err != nil {
		return nil, err
	}
	cfg.Telemetry.MeterProvider = meters
	cfg.Telemetry.TracerProvider = traces
	cfg.Telemetry.Logger = slog.New(telemetry.WithIDs(slog.NewJSONHandler(os.Stderr, nil))) // with the ids of trace and request
	return page, nil
}
