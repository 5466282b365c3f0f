package shop

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/go-chi/chi/v5"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// TracesVariable has the name of a file for spans, one JSON document each. A service in production gives the provider
// an exporter for its collector instead.
const TracesVariable = "TRACES_FILE"

// newTraces returns a provider for all packages. Without the variable there are no traces.
func newTraces() (provider trace.TracerProvider, end func() error, err error) {
	path := os.Getenv(TracesVariable)
	if path == "" {
		return noop.NewTracerProvider(), func() error { return nil }, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // the operator's own choice
	if err != nil {
		return nil, nil, fmt.Errorf("%s: give a file that can be written: %w", TracesVariable, err)
	}
	exporter, err := stdouttrace.New(stdouttrace.WithWriter(file))
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("make the trace exporter: %w", err), file.Close())
	}
	spans := sdk.NewTracerProvider(sdk.WithBatcher(exporter))
	return spans, func() error { return errors.Join(spans.Shutdown(context.Background()), file.Close()) }, nil
}

// traced gives each request a span, in the trace of its caller, with the pattern of its route as its name.
func traced(provider trace.TracerProvider) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		named := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r)
			trace.SpanFromContext(r.Context()).SetName(r.Method + " " + chi.RouteContext(r.Context()).RoutePattern())
		})
		return otelhttp.NewHandler(named, "request", otelhttp.WithTracerProvider(provider), otelhttp.WithPropagators(propagation.TraceContext{}))
	}
}
