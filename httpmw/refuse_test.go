package httpmw_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
)

// envelope is the format of the errors of a service.
type envelope struct {
	Error httpmw.Problem `json:"error"`
}

const enveloped = "application/vnd.shop+json"

// refuser writes refusals in that format, and counts them.
type refuser struct{ calls atomic.Int64 }

func (f *refuser) refuse(w http.ResponseWriter, _ *http.Request, p httpmw.Problem) {
	f.calls.Add(1)
	w.Header().Set("Content-Type", enveloped)
	if err := json.NewEncoder(w).Encode(envelope{p}); err != nil {
		panic(err)
	}
}

// Whatever the middlewares refuse is in the format of the service, with the status and the headers of the problem.
func TestRefusalsInTheFormatOfTheService(t *testing.T) {
	t.Parallel()
	refused := func(s *service) reply { s.start(s.pay); return s.post("k", "{}") }
	for name, c := range map[string]struct {
		change func(s *service)
		ask    func(s *service, f *refuser) reply
		status int
		header map[string]string
	}{
		"idempotency-key-missing": {
			ask: func(s *service, _ *refuser) reply { s.cfg.Required = true; s.start(s.pay); return s.post("", "{}") }, status: 400,
			header: map[string]string{"Link": `</problems/idempotency-key-missing>; rel="describedby"`},
		},
		"idempotency-key-invalid": {ask: func(s *service, _ *refuser) reply { s.start(s.pay); return s.post("a,b", "{}") }, status: 400},
		"idempotency-principal-missing": {
			ask: func(s *service, _ *refuser) reply {
				s.start(s.pay)
				return s.post("k", "{}", header("X-Principal", ""))
			},
			status: 401, header: map[string]string{"WWW-Authenticate": httpmw.DefaultChallenge},
		},
		"idempotency-scope-invalid": {
			change: func(s *service) { s.cfg.RequireTenant = true },
			ask:    func(s *service, _ *refuser) reply { return refused(s) }, status: 400,
		},
		"request-body-too-large": {
			change: func(s *service) { s.cfg.MaxBody = 1 },
			ask:    func(s *service, _ *refuser) reply { return refused(s) }, status: 413,
		},
		"request-body-unreadable": {
			change: func(s *service) {
				s.cfg.Fingerprint = func(*http.Request, []byte) ([]byte, error) { return nil, errors.New("no") }
			},
			ask: func(s *service, _ *refuser) reply { return refused(s) }, status: 400,
		},
		"idempotency-key-reused": {ask: func(s *service, _ *refuser) reply { refused(s); return s.post("k", "[]") }, status: 422},
		"idempotency-key-in-progress": {
			change: func(s *service) { s.cfg.Wait, s.cfg.RetryAfter = 100*time.Millisecond, 7*time.Second }, // looks more than once
			ask: func(s *service, _ *refuser) (got reply) {
				begun, finish := make(chan struct{}), make(chan struct{})
				s.start(func(w http.ResponseWriter, _ *http.Request) {
					close(begun)
					<-finish
					w.WriteHeader(http.StatusCreated)
				})
				first := s.ask("k")
				<-begun
				got = s.post("k", "{}")
				close(finish)
				require.Equal(s.t, http.StatusCreated, (<-first).status)
				return got
			},
			status: 409, header: map[string]string{"Retry-After": "7"},
		},
		"idempotency-key-not-replayable": {
			change: func(s *service) { s.cfg.MaxAnswer = 1 },
			ask: func(s *service, _ *refuser) reply {
				s.start(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Location", "/payments/1")
					_, _ = io.WriteString(w, "too large")
				})
				s.post("k", "{}")
				return s.post("k", "{}")
			},
			status: 410, header: map[string]string{"Location": "/payments/1"},
		},
		"answer-not-held": {
			ask: func(s *service, _ *refuser) reply {
				s.start(func(http.ResponseWriter, *http.Request) {})
				return s.post("k", "{}")
			},
			status: 500,
		},
		"middleware-misplaced": {
			ask: func(s *service, _ *refuser) reply {
				s.serve(httpmw.UnitOfWork(s.units)(s.middleware(http.HandlerFunc(s.pay))))
				return s.post("k", "{}")
			},
			status: 500,
		},
		"idempotency-store-unavailable": {
			change: func(s *service) { s.exec("ALTER TABLE idempotency_keys RENAME TO elsewhere") },
			ask:    func(s *service, _ *refuser) reply { return refused(s) },
			status: 503, header: map[string]string{"Retry-After": "1"},
		},
		"transaction-failed": {
			change: func(s *service) { s.sink.fail = errors.New("no") },
			ask:    func(s *service, _ *refuser) reply { return refused(s) },
			status: 503, header: map[string]string{"Retry-After": "1"},
		},
		"idempotency-key-unknown": {
			change: func(s *service) { s.cfg.Lease = &httpmw.LeaseConfig{} },
			ask:    func(s *service, _ *refuser) reply { begunOnce(s, &teller{}); return s.post("k", "{}") }, status: 503,
		},
		"answer-not-stored": {
			change: func(s *service) {
				s.cfg.Lease = &httpmw.LeaseConfig{}
				s.exec("ALTER TABLE idempotency_keys ADD CONSTRAINT planted CHECK (state <> 'completed')")
			},
			ask:    func(s *service, _ *refuser) reply { return refused(s) },
			status: 503, header: map[string]string{"Retry-After": "1"},
		},
		"unit of work: answer-not-held": {
			ask: func(s *service, f *refuser) reply {
				s.serve(httpmw.UnitOfWork(s.units, httpmw.WithRefuse(f.refuse))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
				return s.post("", "{}")
			},
			status: 500,
		},
		"unit of work: transaction-failed": {
			change: func(s *service) { s.sink.fail = errors.New("no") },
			ask: func(s *service, f *refuser) reply {
				s.serve(httpmw.UnitOfWork(s.units, httpmw.WithRefuse(f.refuse))(http.HandlerFunc(s.pay)))
				return s.post("", "{}")
			},
			status: 503, header: map[string]string{"Retry-After": "1"},
		},
		"unit of work: request-body-too-large": {
			ask: func(s *service, f *refuser) reply {
				s.serve(httpmw.UnitOfWork(s.units, httpmw.WithRefuse(f.refuse))(http.HandlerFunc(s.pay)))
				return s.post("", strings.Repeat("x", httpmw.DefaultMaxBody+1))
			},
			status: 413,
		},
		"tenant: tenant-invalid": {
			ask: func(s *service, f *refuser) reply {
				find := func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil }
				s.serve(httpmw.Tenant(find, httpmw.WithTenantRefuse(f.refuse))(http.HandlerFunc(s.pay)))
				return s.post("", "{}")
			},
			status: 400,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, f := newService(t), &refuser{}
			s.cfg.Refuse = f.refuse
			if c.change != nil {
				c.change(s)
			}
			got := c.ask(s, f)
			require.Equal(t, c.status, got.status, got.body)
			require.Equal(t, []string{enveloped}, got.header.Values("Content-Type"))
			var e envelope
			require.NoError(t, json.Unmarshal([]byte(got.body), &e))
			require.Equal(t, name[strings.LastIndex(name, " ")+1:], e.Error.Type)
			require.Equal(t, c.status, e.Error.Status)
			require.NotEmpty(t, e.Error.Title)
			require.Equal(t, c.header["Retry-After"], got.header.Get("Retry-After"))
			for name, want := range c.header {
				require.Equal(t, want, got.header.Get(name), name)
			}
			require.EqualValues(t, 1, f.calls.Load(), "each refusal that is sent, once")
		})
	}
}

// An answer of the handler is the handler's, the first time and later, whatever its status.
func TestAnswersOfHandlersDoNotPassRefuse(t *testing.T) {
	t.Parallel()
	s, f := newService(t), &refuser{}
	s.cfg.Refuse = f.refuse
	s.start(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no funds", http.StatusUnprocessableEntity)
	})
	for range 2 {
		require.Equal(t, "no funds\n", s.post("k", "{}").body)
	}
	require.Zero(t, f.calls.Load())
}

// Mistakes of the function spoil nothing but its format.
func TestRefuseThatGoesWrong(t *testing.T) {
	t.Parallel()
	const instead = "the refusal is sent as application/problem+json"
	problem := func(t *testing.T, s *service, got reply) {
		t.Helper()
		require.Equal(t, "idempotency-key-reused", s.kind(got, http.StatusUnprocessableEntity))
		require.Empty(t, got.header.Get("X-Half"))
		require.Contains(t, s.log.String(), instead)
		require.Contains(t, s.log.String(), "type=idempotency-key-reused")
	}
	own := func(status int, body string) func(*testing.T, *service, reply) {
		return func(t *testing.T, s *service, got reply) {
			t.Helper()
			require.Equal(t, status, got.status)
			require.Equal(t, body, got.body)
			require.NotContains(t, s.log.String(), instead)
		}
	}
	for name, c := range map[string]struct {
		refuse httpmw.RefuseFunc
		want   func(*testing.T, *service, reply)
	}{
		"writes nothing": {func(w http.ResponseWriter, _ *http.Request, _ httpmw.Problem) { w.Header().Set("X-Half", "yes") }, problem},
		"early hints":    {func(w http.ResponseWriter, _ *http.Request, _ httpmw.Problem) { w.WriteHeader(http.StatusEarlyHints) }, problem},
		"flushes": {func(w http.ResponseWriter, _ *http.Request, _ httpmw.Problem) {
			_ = http.NewResponseController(w).Flush()
		}, problem},
		"hijacks": {func(w http.ResponseWriter, _ *http.Request, _ httpmw.Problem) {
			_, _, _ = http.NewResponseController(w).Hijack()
		}, problem},
		"is cut off": {func(w http.ResponseWriter, _ *http.Request, _ httpmw.Problem) {
			w.Header().Set("X-Half", "yes")
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
		}, problem},
		"writes no status": {func(w http.ResponseWriter, _ *http.Request, _ httpmw.Problem) { _, _ = io.WriteString(w, "no") }, own(422, "no")},
		"writes no body":   {func(w http.ResponseWriter, _ *http.Request, _ httpmw.Problem) { w.WriteHeader(http.StatusBadRequest) }, own(400, "")},
		"writes twice": {func(w http.ResponseWriter, _ *http.Request, _ httpmw.Problem) {
			for range 2 {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, "no")
				w.WriteHeader(http.StatusOK)
			}
		}, own(400, "nono")},
		"writes later": {func(w http.ResponseWriter, r *http.Request, _ httpmw.Problem) {
			w.WriteHeader(http.StatusBadRequest)
			*r.Context().Value(laterKey{}).(*func()) = func() { _, _ = io.WriteString(w, "later") }
		}, own(400, "")},
		"panics": {func(w http.ResponseWriter, _ *http.Request, _ httpmw.Problem) {
			w.Header().Set("X-Half", "yes")
			_, _ = io.WriteString(w, "half")
			panic("planted")
		}, func(t *testing.T, _ *service, got reply) {
			t.Helper()
			require.Equal(t, http.StatusInternalServerError, got.status, "that of the recoverer")
			require.Empty(t, got.body)
			require.Empty(t, got.header.Get("X-Half"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.cfg.Refuse = c.refuse
			s.serve(later(middleware.Recoverer(s.middleware(http.HandlerFunc(s.pay)))))
			require.Equal(t, http.StatusCreated, s.post("k", "{}").status)
			c.want(t, s, s.post("k", "[]"))
			require.Equal(t, "true", s.post("k", "{}").header.Get("Idempotent-Replayed"), "what was stored is as it was")
			require.Equal(t, 1, s.payments())
			require.Equal(t, map[string]int64{"executed": 1, "mismatch": 1, "replayed": 1}, s.counter("oncebox.idempotency.requests"))
		})
	}
}

type laterKey struct{}

// later calls what a handler has put off.
func later(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fn := func() {}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), laterKey{}, &fn)))
		fn()
	})
}

// A function that answers by the writer of its framework has answered, and nothing is added to that.
func TestRefuseThatWritesPastTheMiddleware(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.Refuse = func(_ http.ResponseWriter, r *http.Request, p httpmw.Problem) {
		http.Error(r.Context().Value(laterKey{}).(http.ResponseWriter), p.Title, p.Status)
	}
	h := s.middleware(http.HandlerFunc(s.pay))
	s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), laterKey{}, w)))
	}))
	got := s.post("a,b", "{}")
	require.Equal(t, http.StatusBadRequest, got.status)
	require.Equal(t, "Idempotency-Key is invalid\n", got.body)
}

// The refusal of a middleware within is no answer of the handler: nothing is committed with it and nothing stored, whatever status the service gives it.
func TestRefusalWithinIsNotStored(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusBadRequest, http.StatusInternalServerError} {
		own := func(w http.ResponseWriter, _ *http.Request, _ httpmw.Problem) { w.WriteHeader(status) }
		for name, within := range map[string]func(s *service) func(http.Handler) http.Handler{
			"unit of work": func(s *service) func(http.Handler) http.Handler {
				return httpmw.UnitOfWork(s.units, httpmw.WithRefuse(own))
			},
			"tenant": func(*service) func(http.Handler) http.Handler {
				return httpmw.Tenant(func(*http.Request) (string, error) { return "", nil }, httpmw.WithTenantRefuse(own))
			},
			"behind a wrapper": func(s *service) func(http.Handler) http.Handler {
				inner := httpmw.UnitOfWork(s.units, httpmw.WithRefuse(own))
				return func(next http.Handler) http.Handler {
					h := inner(next)
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						h.ServeHTTP(middleware.NewWrapResponseWriter(w, r.ProtoMajor), r)
					})
				}
			},
		} {
			for kind, mount := range kindsOfUnit() {
				t.Run(name+"/"+kind+"/"+http.StatusText(status), func(t *testing.T) {
					t.Parallel()
					s := newService(t)
					inner := within(s)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
					s.serve(mount(s)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						s.runs.Add(1)
						_, err := s.insert(r.Context())
						noError(t, err)
						inner.ServeHTTP(w, r)
					})))
					for n := 1; n <= 2; n++ {
						got := s.post("k", "{}")
						require.Equal(t, status, got.status, got.body)
						require.Empty(t, got.header.Get("Idempotent-Replayed"))
						require.EqualValues(t, n, s.runs.Load())
					}
					if kind != "key, lease" {
						require.Zero(t, s.payments())
					}
					require.Zero(t, s.count("SELECT count(*) FROM idempotency_keys WHERE status IS NOT NULL"))
				})
			}
		}
	}
}

// A handler that asks another part of its service, and is refused there, answers as it likes.
func TestRefusalThatAHandlerHasAskedFor(t *testing.T) {
	t.Parallel()
	s := newService(t)
	other := httpmw.UnitOfWork(s.units)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.start(func(w http.ResponseWriter, r *http.Request) {
		_, err := s.insert(r.Context())
		noError(t, err)
		there := httptest.NewRecorder()
		other.ServeHTTP(there, r)
		if there.Code != http.StatusInternalServerError {
			t.Errorf("the other part: %d", there.Code)
		}
		w.WriteHeader(http.StatusCreated)
	})
	require.Equal(t, http.StatusCreated, s.post("k", "{}").status)
	require.Equal(t, "true", s.post("k", "{}").header.Get("Idempotent-Replayed"))
	require.Equal(t, 1, s.payments())
}

// A refusal behind an answer of the handler is not the answer.
func TestRefusalBehindAnAnswer(t *testing.T) {
	t.Parallel()
	s := newService(t)
	other := httpmw.UnitOfWork(s.units)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.start(func(w http.ResponseWriter, r *http.Request) {
		_, err := s.insert(r.Context())
		noError(t, err)
		w.WriteHeader(http.StatusCreated)
		other.ServeHTTP(w, r)
	})
	require.Equal(t, http.StatusCreated, s.post("k", "{}").status)
	require.Equal(t, "true", s.post("k", "{}").header.Get("Idempotent-Replayed"))
	require.Equal(t, 1, s.payments())
}
