package httpmw_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/internal/pgtest"
)

const (
	noAnswer = "the handler has returned without writing an answer"
	tooLate  = "code wrote to the response after its handler had returned"
)

// returning is a handler of those frameworks that have it return its error. What it stands for is rendered by the framework.
type returning func(w http.ResponseWriter, r *http.Request) error

// outside renders errors where such frameworks do it: further out than their middlewares.
func (s *service) outside(middleware func(http.Handler) http.Handler, h returning) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner := w
		var err error
		middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.runs.Add(1)
			inner = w // as Echo keeps the writer of the innermost middleware
			err = h(w, r)
		})).ServeHTTP(w, r)
		if err != nil {
			http.Error(inner, err.Error(), http.StatusBadGateway)
		}
	})
}

// kindsOfUnit are all middlewares that hold an answer until COMMIT.
func kindsOfUnit() map[string]func(s *service, options ...string) func(http.Handler) http.Handler {
	key := func(change func(*httpmw.IdempotencyConfig)) func(*service, ...string) func(http.Handler) http.Handler {
		return func(s *service, options ...string) func(http.Handler) http.Handler {
			change(&s.cfg)
			s.cfg.EmptyAnswer = len(options) > 0
			return httpmw.Idempotency(s.units, s.keys, byHeader, &s.cfg)
		}
	}
	return map[string]func(*service, ...string) func(http.Handler) http.Handler{
		"key":               key(func(*httpmw.IdempotencyConfig) {}),
		"key, run once":     key(func(c *httpmw.IdempotencyConfig) { c.RunOnce = true }),
		"key, without unit": key(func(c *httpmw.IdempotencyConfig) { c.WithoutUnit = true }),
		"key, lease":        key(func(c *httpmw.IdempotencyConfig) { c.Lease = &httpmw.LeaseConfig{} }),
		"unit of work": func(s *service, options ...string) func(http.Handler) http.Handler {
			if len(options) > 0 {
				return httpmw.UnitOfWork(s.units, httpmw.WithEmptyAnswer())
			}
			return httpmw.UnitOfWork(s.units)
		},
	}
}

// net/http takes silence for 200. A handler whose error is rendered further out is silent as well, and its work has failed.
func TestSilenceIsNoSuccess(t *testing.T) {
	t.Parallel()
	failed := errors.New("the bank said no")
	for name, handler := range map[string]func(http.ResponseWriter){
		"nothing":            func(http.ResponseWriter) {},
		"headers":            func(w http.ResponseWriter) { w.Header().Set("Location", "/payments/1") },
		"early hints":        func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints) },
		"continue":           func(w http.ResponseWriter) { w.WriteHeader(http.StatusContinue) },
		"a flush":            func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() },
		"a hijack":           func(w http.ResponseWriter) { _, _, _ = http.NewResponseController(w).Hijack() },
		"switched protocols": func(w http.ResponseWriter) { w.WriteHeader(http.StatusSwitchingProtocols) },
	} {
		for kind, mount := range kindsOfUnit() {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				s := newService(t)
				s.serve(s.outside(mount(s), func(w http.ResponseWriter, r *http.Request) error {
					_, err := s.units.DB(r.Context()).NewRaw("INSERT INTO payments DEFAULT VALUES").Exec(r.Context())
					noError(t, err)
					handler(w)
					return failed
				}))
				for n := 1; n <= 2; n++ {
					got := s.post("k", "{}")
					require.Equal(t, http.StatusInternalServerError, got.status, got.body)
					problem, retryable := got.problem(t)
					require.Equal(t, "answer-not-held", problem)
					require.False(t, retryable)
					require.Empty(t, got.header.Get("Location"))
					require.Empty(t, got.header.Get("Idempotent-Replayed"))
					require.EqualValues(t, n, s.runs.Load(), "nothing was kept, so a retry runs")
				}
				if kind != "key, lease" { // its handler has no transaction
					require.Zero(t, s.payments())
				}
				require.Zero(t, s.count("SELECT count(*) FROM idempotency_keys WHERE status IS NOT NULL"))
				require.Equal(t, 2, strings.Count(s.log.String(), noAnswer), s.log)
				require.Contains(t, s.log.String(), "w.WriteHeader(http.StatusNoContent)")
				require.Contains(t, s.log.String(), "docs/other-routers.md")
				require.Contains(t, s.log.String(), tooLate)
			})
		}
	}
}

// Each method, also methods that only read: an answer that a framework writes further out would be a 200 as well.
func TestSilenceIsNoSuccessOfAnyMethod(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.serve(httpmw.UnitOfWork(s.units)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	for _, m := range []string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"} {
		require.Equal(t, http.StatusInternalServerError, s.post("", "", method(m)).status, m)
	}
}

// An answer is whatever has a final status, and a byte of a body.
func TestWhatIsAnAnswer(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		status  int
	}{
		"204":              {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, http.StatusNoContent},
		"200":              {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }, http.StatusOK},
		"nothing, written": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil) }, http.StatusOK},
		"a body":           {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") }, http.StatusOK},
		"hints, then 201": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusCreated)
		}, http.StatusCreated},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusSeeOther) }, http.StatusSeeOther},
	} {
		for kind, mount := range kindsOfUnit() {
			t.Run(name+"/"+kind, func(t *testing.T) {
				s := newServiceOn(t, db)
				s.serve(mount(s)(c.handler))
				require.Equal(t, c.status, s.post("k", "{}").status)
			})
		}
	}
}

// Silence that is meant is net/http's 200, and is replayed.
func TestEmptyAnswerIsMeant(t *testing.T) {
	t.Parallel()
	for kind, mount := range kindsOfUnit() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.serve(mount(s, "meant")(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, err := s.insert(r.Context())
				noError(t, err)
			})))
			require.Equal(t, http.StatusOK, s.post("k", "{}").status)
			require.Equal(t, 1, s.payments())
			if kind != "unit of work" {
				require.Equal(t, "true", s.post("k", "{}").header.Get("Idempotent-Replayed"))
				require.Equal(t, 1, s.payments())
			}
			require.NotContains(t, s.log.String(), noAnswer)
		})
	}
}
