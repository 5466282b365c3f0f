package serve

import (
	"context"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
)

// around gives each request of the service a span in the trace of its caller, metrics, a time limit, an answer if its handler panics, and the metadata
// of its events.
func (p *process) around(h http.Handler) http.Handler {
	if h == nil || !p.cfg.has(API) {
		return nothing()
	}
	requests := mounted(h)
	bounded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), p.cfg.RequestTimeout)
		defer cancel()
		// A router of chi that finds this writes its route into it.
		route := chi.NewRouteContext()
		route.Routes, _ = h.(chi.Routes)
		inner := r.WithContext(context.WithValue(ctx, chi.RouteCtxKey, route))
		defer func() { r.Pattern = pattern(route, inner) }() // otelhttp names span and metrics by it
		requests.ServeHTTP(w, inner)
	})
	t := p.app.Telemetry
	traced := otelhttp.NewHandler(bounded, "request", otelhttp.WithTracerProvider(t.TracerProvider), otelhttp.WithMeterProvider(t.MeterProvider),
		otelhttp.WithPropagators(propagation.TraceContext{}))
	return middleware.Recoverer(traced)
}

// pattern returns the route that a router has found, as chi or http.ServeMux write it, "" if it has told nobody.
func pattern(route *chi.Context, r *http.Request) string {
	if found := route.RoutePattern(); found != "" {
		return found
	}
	return r.Pattern
}
