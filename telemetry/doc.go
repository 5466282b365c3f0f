// Package telemetry says where logs, traces and metrics go. The Config of each package that has any of them has a field Telemetry.
//
// Packages below this one make what a Config needs: prom has a page of metrics for Prometheus, otlp sends traces to a collector. Each links only its
// own exporter.
//
// Read first: config.go:Config, then ids.go:WithIDs.
package telemetry
