package httpmw_test

import (
	"net/http"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// A route that is missing today is there tomorrow, and then a retry is to be executed. What a handler did not find is an answer like
// others.
func TestMissingRouteIsNoAnswer(t *testing.T) {
	t.Parallel()
	notFound := func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no such payment", http.StatusNotFound) }
	inner := func(use ...func(http.Handler) http.Handler) chi.Router {
		r := chi.NewRouter()
		r.Use(use...)
		r.Post("/7", notFound)
		return r
	}
	type once = func(http.Handler) http.Handler
	db := pgtest.Migrated(t)
	for name, mount := range map[string]func(once) http.Handler{
		"chi": func(once once) http.Handler {
			r := chi.NewRouter()
			r.Use(once)
			r.Post("/payments/7", notFound)
			return r
		},
		"chi, mounted": func(once once) http.Handler {
			r := chi.NewRouter()
			r.Use(once)
			r.Mount("/payments", inner())
			return r
		},
		"chi, in the mounted": func(once once) http.Handler {
			r := chi.NewRouter()
			r.Mount("/payments", inner(once))
			return r
		},
		"chi, paths are rewritten before": func(once once) http.Handler {
			r := chi.NewRouter()
			r.Use(middleware.StripSlashes, once)
			r.Mount("/payments", inner())
			return r
		},
		"ServeMux": func(once once) http.Handler {
			mux := http.NewServeMux()
			mux.HandleFunc("POST /payments/7", notFound)
			return once(mux)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServiceOn(t, db)
			s.cfg.Methods = []string{http.MethodPost, http.MethodPut}
			s.serve(mount(httpmw.Idempotency(s.units, s.keys, byHeader, &s.cfg)))
			send := func(key string, changes ...change) reply { return s.post(key, "{}", changes...) }
			for range 2 {
				got := send("elsewhere", at("/payments/8"))
				require.Equal(t, http.StatusNotFound, got.status)
				require.Empty(t, got.header.Get("Idempotent-Replayed"))
				got = send("otherwise", at("/payments/7"), method(http.MethodPut))
				require.Equal(t, http.StatusMethodNotAllowed, got.status)
				require.Empty(t, got.header.Get("Idempotent-Replayed"))
			}
			require.Zero(t, s.stored())
			path := at("/payments/7")
			if name == "chi, paths are rewritten before" {
				path = at("/payments/7/")
			}
			require.Equal(t, http.StatusNotFound, send("k", path).status)
			require.Equal(t, "true", send("k", path).header.Get("Idempotent-Replayed"))
		})
	}

	// Without a router that reports the pattern, it is the handler's.
	s := newService(t)
	s.start(notFound)
	s.post("k", "{}")
	require.Equal(t, "true", s.post("k", "{}").header.Get("Idempotent-Replayed"))
}

// Under a lease the key is released: it stays that of its request.
func TestMissingRouteUnderALease(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.Lease = &httpmw.LeaseConfig{}
	version := func() chi.Router {
		r := chi.NewRouter()
		r.Use(httpmw.Idempotency(s.units, s.keys, byHeader, &s.cfg))
		return r
	}
	s.serve(version())
	require.Equal(t, http.StatusNotFound, s.post("k", "{}").status)
	next := version()
	next.Post("/payments", s.pay)
	s.serve(next)
	require.Equal(t, http.StatusCreated, s.post("k", "{}").status, "the route is there now")
}
