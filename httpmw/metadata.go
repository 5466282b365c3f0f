package httpmw

import (
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/otelx"
)

// Metadata returns a middleware that puts the metadata into the context that ties events to their request:
//
//   - correlation_id: X-Correlation-ID, else X-Request-ID, else a new UUIDv7
//   - causation_id: X-Request-ID, else the correlation id
//   - traceparent and tracestate, as the request has them; a span that is active when an event is added replaces them
//
// The answer has the correlation id in X-Correlation-ID. Invalid identifiers are treated as missing, because anybody can send them, and they are
// written into rows, messages and logs. Package serve mounts this middleware around all requests. If it is mounted twice, the outer one counts.
func Metadata() func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, mounted := event.MetadataFrom(r.Context())[event.CorrelationID]; mounted {
				next.ServeHTTP(w, r)
				return
			}
			request := identifier(r, "X-Request-ID")
			correlation := identifier(r, "X-Correlation-ID")
			if correlation == "" {
				correlation = request
			}
			if correlation == "" {
				correlation = uuid.Must(uuid.NewV7()).String()
			}
			if request == "" {
				request = correlation
			}
			md := event.Metadata{event.CorrelationID: correlation, event.CausationID: request}
			parent := map[string]string{
				event.TraceParent: r.Header.Get("Traceparent"), event.TraceState: r.Header.Get("Tracestate"),
			}
			if span := otelx.Extract(parent); span.IsValid() {
				md[event.TraceParent] = parent[event.TraceParent]
				if state := span.TraceState().String(); state != "" {
					md[event.TraceState] = state
				}
			}
			// Set before the handler runs, so that an error page has it too.
			w.Header().Set("X-Correlation-ID", correlation)
			serveWith(event.WithMetadata(r.Context(), md), next, w, r)
		})
	}
}

// serveWith calls next with another context. A middleware further out that labels its metrics by the route reads it from its own request, so the route
// that a http.ServeMux within next has found is copied to it.
func serveWith(ctx context.Context, next http.Handler, w http.ResponseWriter, r *http.Request) {
	inner := r.WithContext(ctx)
	defer func() { r.Pattern = inner.Pattern }()
	next.ServeHTTP(w, inner)
}

// identifier returns the header's value if it can be an identifier, else "".
func identifier(r *http.Request, header string) string {
	v := r.Header.Get(header)
	if event.ValidateIdentifier(header, v) != nil {
		return ""
	}
	return v
}
