package httpmw_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
)

// A http.TimeoutHandler between a router of chi and the middleware has the router return, and use its chi.Context for another
// request, while this one waits for a connection. Neither may see the other's path.
func TestRouterThatIsGone(t *testing.T) {
	t.Parallel()
	type middleware = func(http.Handler) http.Handler
	for name, mount := range map[string]func(r chi.Router, timed, once middleware, h http.HandlerFunc){
		"With": func(r chi.Router, timed, once middleware, h http.HandlerFunc) {
			r.Use(timed)
			r.With(once).Post("/payments/{id}", h)
		},
		"Use": func(r chi.Router, timed, once middleware, h http.HandlerFunc) {
			r.Use(timed, once)
			r.Post("/payments/{id}", h)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			begun, gone, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
			s.cfg.APIVersion = func(*http.Request) string { // the body has been read, and no run has begun
				close(begun)
				<-gone
				return ""
			}
			other := chi.NewRouteContext()
			timed := func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					ctx, cancel := context.WithCancel(r.Context())
					go func() {
						defer close(done)
						next.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
					}()
					<-begun
					cancel()
					other = chi.RouteContext(ctx) // as if it came from chi's pool
					other.Reset()
					other.URLParams.Add("id", "stranger")
					other.RoutePatterns = append(other.RoutePatterns, "/others/{id}")
					close(gone)
					<-done
					w.WriteHeader(http.StatusServiceUnavailable)
				})
			}
			var id, pattern string
			r := chi.NewRouter()
			mount(r, timed, httpmw.Idempotency(s.units, s.keys, byHeader, &s.cfg), func(w http.ResponseWriter, r *http.Request) {
				id, pattern = chi.URLParam(r, "id"), chi.RouteContext(r.Context()).RoutePattern()
				chi.RouteContext(r.Context()).URLParams.Values[0] = "overwritten"
				w.WriteHeader(http.StatusCreated)
			})
			s.serve(r)
			require.Equal(t, http.StatusServiceUnavailable, s.post("k", "{}", at("/payments/mine")).status)
			require.Equal(t, "mine", id)
			require.Equal(t, "/payments/{id}", pattern)
			require.Equal(t, []string{"stranger"}, other.URLParams.Values)
			require.Equal(t, "/others/{id}", other.RoutePattern())
			require.Equal(t, 1, s.stored())
		})
	}
}

// Middlewares further out find the route that was taken within, for their metrics and logs.
func TestRouteForMiddlewaresFurtherOut(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var route, id string
	r := chi.NewRouter()
	r.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r)
			route, id = chi.RouteContext(r.Context()).RoutePattern(), chi.URLParam(r, "id")
		})
	}, httpmw.Idempotency(s.units, s.keys, byHeader, &s.cfg))
	r.Route("/payments/{id}", func(r chi.Router) { r.Post("/refunds", s.pay) })
	s.serve(r)
	require.Equal(t, http.StatusCreated, s.post("k", "{}", at("/payments/7/refunds")).status)
	require.Equal(t, "/payments/{id}/refunds", route)
	require.Equal(t, "7", id)
}

// chi.Context holds how a router is connected with another one that is mounted within the middleware, and
// does not export it.
func TestRouterThatIsMountedWithin(t *testing.T) {
	t.Parallel()
	s := newService(t)
	inner := chi.NewRouter()
	inner.Post("/{id}/refunds", s.pay)
	r := chi.NewRouter()
	r.With(httpmw.Idempotency(s.units, s.keys, byHeader, &s.cfg)).Mount("/payments", inner)
	s.serve(r)
	require.Equal(t, http.StatusCreated, s.post("k", "{}", at("/payments/7/refunds")).status)
}

// The log names the route that failed.
func TestRouteIsLogged(t *testing.T) {
	t.Parallel()
	for mode, lease := range map[string]*httpmw.LeaseConfig{"atomic": nil, "lease": {}} {
		t.Run(mode, func(t *testing.T) {
			s := newService(t)
			s.cfg.Lease, s.cfg.MaxHeld = lease, 1
			r := chi.NewRouter()
			r.Use(httpmw.Idempotency(s.units, s.keys, byHeader, &s.cfg))
			r.Post("/payments/{id}", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("too much")) })
			s.serve(r)
			s.post("k", "{}", at("/payments/secret"))
			require.Contains(t, s.log.String(), "route=/payments/{id}")
			require.NotContains(t, s.log.String(), "secret")
		})
	}
}
