package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/uow"
)

// A refused request is refused before anything is executed, with a problem that says what to do.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.Required, s.cfg.MaxBody = true, 64
	s.start(s.pay)
	chunked := func(r *http.Request) { r.ContentLength = -1 }
	key := func(lines ...string) []change { return []change{header("Idempotency-Key", lines...)} }
	long := strings.Repeat("k", 256)
	for name, tc := range map[string]struct {
		body    string
		changes []change
		status  int
		kind    string
	}{
		"no key":                  {"", nil, 400, "idempotency-key-missing"},
		"empty key":               {"", key(""), 400, "idempotency-key-invalid"},
		"blank key":               {"", key("  "), 400, "idempotency-key-invalid"},
		"empty quoted key":        {"", key(`""`), 400, "idempotency-key-invalid"},
		"key not closed":          {"", key(`"k`), 400, "idempotency-key-invalid"},
		"key joined by a proxy":   {"", key("a, b"), 400, "idempotency-key-invalid"},
		"two lines":               {"", key("a", "a"), 400, "idempotency-key-invalid"},
		"key not ASCII":           {"", key("schlüssel"), 400, "idempotency-key-invalid"},
		"key longer than 255":     {"", key(long), 400, "idempotency-key-invalid"},
		"quoted longer than 255":  {"", key(`"` + long + `"`), 400, "idempotency-key-invalid"},
		"no principal":            {"", append(key("k"), header("X-Principal", "")), 401, "idempotency-principal-missing"},
		"principal that is none":  {"", append(key("k"), header("X-Principal", long)), 400, "idempotency-scope-invalid"},
		"body too large":          {strings.Repeat("b", 65), key("k"), 413, "request-body-too-large"},
		"body too large, chunked": {strings.Repeat("b", 65), append(key("k"), chunked), 413, "request-body-too-large"},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.post("", tc.body, tc.changes...)
			require.Equal(t, tc.status, got.status, got.body)
			kind, retryable := got.problem(t)
			require.Equal(t, tc.kind, kind)
			require.False(t, retryable)
		})
	}
	require.Zero(t, s.runs.Load())
	require.Zero(t, s.stored())
	require.Equal(t, map[string]int64{"refused": 14}, s.counter("oncebox.idempotency.requests"))

	for name, key := range map[string]string{"255": strings.Repeat("k", 255), "255, quoted": `"` + strings.Repeat("q", 255) + `"`} {
		require.Equal(t, http.StatusCreated, s.post(key, strings.Repeat("b", 64)).status, name)
	}
}

func TestScopeFunctionThatFails(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.serve(httpmw.Idempotency(s.units, s.keys, func(*http.Request) (idempotency.Scope, error) {
		return idempotency.Scope{}, errors.New("directory is down")
	}, &s.cfg)(http.HandlerFunc(s.pay)))
	got := s.post("k", "{}")
	kind, _ := got.problem(t)
	require.Equal(t, "idempotency-scope-invalid", kind)
	require.NotContains(t, got.body, "directory")
	require.Contains(t, s.log.String(), "directory is down")
}

// Without a key, or with another method, the handler is on its own.
func TestUntouched(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	for name, changes := range map[string][]change{
		"no key":                              {},
		"GET":                                 {header("Idempotency-Key", "k"), method(http.MethodGet)},
		"HEAD":                                {header("Idempotency-Key", "k"), method(http.MethodHead)},
		"PUT":                                 {header("Idempotency-Key", "k"), method(http.MethodPut)},
		"DELETE":                              {header("Idempotency-Key", "k"), method(http.MethodDelete)},
		"a malformed key that does not count": {header("Idempotency-Key", "a", "b"), method(http.MethodPut)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServiceOn(t, db)
			s.start(func(w http.ResponseWriter, r *http.Request) {
				_, inUnit := uow.FromContext(r.Context())
				_, flusher := w.(http.Flusher)
				w.Header().Set("X-Saw", fmt.Sprint(inUnit, flusher))
				s.pay(w, r)
			})
			for range 2 {
				got := s.post("", "", changes...)
				require.Equal(t, http.StatusCreated, got.status)
				require.Equal(t, "false true", got.header.Get("X-Saw"))
				require.Empty(t, got.header.Get("Idempotent-Replayed"))
			}
			require.EqualValues(t, 2, s.runs.Load())
			require.Equal(t, 2, s.payments())
			require.Zero(t, s.stored())
		})
	}
}

func TestMethodsAreConfigured(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.Methods = []string{http.MethodPut}
	s.start(s.pay)
	s.post("k", "{}", method(http.MethodPut))
	s.post("k", "{}", method(http.MethodPut))
	require.Equal(t, 1, s.payments())
	s.post("k", "{}")
	s.post("k", "{}")
	require.Equal(t, 3, s.payments())
}

func TestRetryGetsTheSameAnswer(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.Headers = []string{"x-payment-version"}
	body := "\x00\xff any bytes \r\n" + strings.Repeat("x", 100_000)
	s.start(func(w http.ResponseWriter, r *http.Request) {
		_, err := s.insert(r.Context())
		noError(t, err)
		for name, value := range map[string]string{
			"Content-Type": "application/octet-stream", "Location": "/payments/1", "ETag": `"1"`, "Link": "</a>; rel=self", "X-Payment-Version": "7",
			"Accept-Patch": "application/json", "Allow": "PUT", "Cache-Control": "no-store", "Content-Disposition": "inline",
			"Set-Cookie": "session=secret", "X-Request-Id": "r1", "Date": "Sat, 01 Jan 2000 00:00:00 GMT", "Www-Authenticate": "Basic",
		} {
			w.Header().Set(name, value)
		}
		w.Header().Add("Link", "</b>; rel=next")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, body)
	})
	first := s.post("k", "{}")
	require.Equal(t, http.StatusAccepted, first.status)
	require.Equal(t, body, first.body)
	require.Equal(t, "session=secret", first.header.Get("Set-Cookie"))
	require.Empty(t, first.header.Get("Idempotent-Replayed"))

	// The last one is another process: it has no hint that the key was seen.
	another := newKeys(s)
	for name, keys := range map[string]*idempotency.Store{"raw": s.keys, "quoted": s.keys, "another process": another} {
		key := map[string]string{"quoted": `"k"`}[name]
		if key == "" {
			key = "k"
		}
		s.keys = keys
		s.start(func(http.ResponseWriter, *http.Request) { t.Error("executed again") })
		got := s.post(key, "{}")
		require.Equal(t, first.status, got.status, name)
		require.Equal(t, first.body, got.body, name)
		require.Equal(t, "true", got.header.Get("Idempotent-Replayed"))
		for _, kept := range append(httpmw.StoredHeaders(), "X-Payment-Version", "Content-Length", "Content-Type",
			"Accept-Patch", "Content-Disposition") {
			require.Equal(t, first.header.Values(kept), got.header.Values(kept), kept)
		}
		for _, dropped := range []string{"Set-Cookie", "X-Request-Id", "Www-Authenticate"} {
			require.Empty(t, got.header.Values(dropped), dropped)
		}
		require.NotEqual(t, first.header.Get("Date"), got.header.Get("Date"), "of the moment")
	}
	require.Equal(t, 1, s.payments())
	require.Equal(t, 1, s.sink.count())
}

func newKeys(s *service) *idempotency.Store {
	return idempotency.NewStore(&idempotency.Config{Schema: s.db.Schema})
}

// Which answers are stored, and what becomes of the work.
func TestStatuses(t *testing.T) {
	t.Parallel()
	const (
		kept    = "work kept, answer stored"
		dropped = "work dropped, answer stored"
		freed   = "work dropped, key free"
	)
	s := newService(t)
	s.start(func(w http.ResponseWriter, r *http.Request) {
		_, err := s.insert(r.Context())
		noError(t, err)
		status, err := strconv.Atoi(r.Header.Get("X-Status"))
		noError(t, err)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "answer")
	})
	for status, want := range map[int]string{
		200: kept, 201: kept, 202: kept, 204: kept, 206: kept, 301: kept, 303: kept, 304: kept,
		400: dropped, 402: dropped, 404: dropped, 410: dropped, 413: dropped, 415: dropped, 418: dropped, 422: dropped, 451: dropped,
		401: freed, 403: freed, 407: freed, 408: freed, 409: freed, 412: freed, 421: freed, 423: freed, 425: freed, 426: freed,
		428: freed, 429: freed,
		500: freed, 501: freed, 502: freed, 503: freed, 504: freed, 599: freed,
	} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			runsBefore, paymentsBefore, eventsBefore, storedBefore := s.runs.Load(), s.payments(), s.sink.count(), s.stored()
			code := strconv.Itoa(status)
			first, second := s.post(code, "{}", header("X-Status", code)), s.post(code, "{}", header("X-Status", code))
			require.Equal(t, status, first.status)
			require.Equal(t, status, second.status)
			require.Equal(t, first.body, second.body)

			runs, rows, replayed := int64(1), 0, "true"
			if want == kept {
				rows = 1
			}
			if want == freed {
				runs, replayed = 2, ""
			}
			require.Equal(t, runs, s.runs.Load()-runsBefore)
			require.Equal(t, rows, s.payments()-paymentsBefore)
			require.Equal(t, rows, s.sink.count()-eventsBefore, "events")
			require.Equal(t, replayed, second.header.Get("Idempotent-Replayed"))
			require.Equal(t, map[string]int{kept: 1, dropped: 1, freed: 0}[want], s.stored()-storedBefore)
		})
	}
}

func TestHooksRunOnlyAfterCommit(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var hooks []string
	s.start(func(w http.ResponseWriter, r *http.Request) {
		u := uow.MustFromContext(r.Context())
		status := map[string]int{"/a": 200, "/b": 422, "/c": 500}[r.URL.Path]
		u.AfterCommit(func(ctx context.Context) { hooks = append(hooks, r.URL.Path+strconv.Itoa(s.stored())) })
		w.WriteHeader(status)
	})
	for _, path := range []string{"/c", "/b", "/a", "/a"} {
		s.post("k", "{}", at(path))
	}
	require.Equal(t, []string{"/a2"}, hooks, "once, and with the answer visible to others")
}

func TestSameKeyForAnotherRequest(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start(s.pay)
	first := s.post("k", `{"amount": 1, "to": "a"}`)
	for name, c := range map[string]struct {
		body    string
		changes []change
		same    bool
	}{
		"another amount":       {`{"amount": 2, "to": "a"}`, nil, false},
		"another query":        {`{"amount": 1, "to": "a"}`, []change{func(r *http.Request) { r.URL.RawQuery = "dry=1" }}, false},
		"another content type": {`{"amount": 1, "to": "a"}`, []change{header("Content-Type", "text/plain")}, false},
		"no body":              {``, nil, false},
		"respelled":            {`{ "to":"\u0061","amount":1 }`, []change{header("Content-Type", "Application/JSON")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, keys := range []*idempotency.Store{s.keys, newKeys(s)} {
				s.keys = keys
				s.start(s.pay)
				got := s.post("k", c.body, c.changes...)
				if c.same {
					require.Equal(t, first.body, got.body)
					continue
				}
				require.Equal(t, http.StatusUnprocessableEntity, got.status)
				kind, retryable := got.problem(t)
				require.Equal(t, "idempotency-key-reused", kind)
				require.False(t, retryable)
				require.NotContains(t, got.body, `"id"`, "the stored answer is not told")
			}
		})
	}
	require.Equal(t, 1, s.payments())
}

// The tenant that the middleware further out has found is that of the key, so that one user of two tenants has two keys.
func TestTenantOfTheRequestIsThatOfTheKey(t *testing.T) {
	t.Parallel()
	tenant := httpmw.Tenant(func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil })
	for name, scope := range map[string]httpmw.ScopeFunc{
		"a user":    func(*http.Request) (idempotency.Scope, error) { return idempotency.Scope{Principal: "u1"}, nil },
		"anonymous": func(*http.Request) (idempotency.Scope, error) { return idempotency.Anonymous(""), nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			s.serve(tenant(httpmw.Idempotency(s.units, s.keys, scope, &s.cfg)(http.HandlerFunc(s.pay))))
			for n, of := range []string{"acme", "bolt", "default"} {
				first, again := s.post("k", "{}", header("X-Tenant", of)), s.post("k", "{}", header("X-Tenant", of))
				require.Equal(t, http.StatusCreated, first.status)
				require.Empty(t, first.header.Get("Idempotent-Replayed"), "that of another tenant")
				require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
				require.Equal(t, n+1, s.payments())
			}
			require.Equal(t, 1, s.count("SELECT count(*) FROM idempotency_keys WHERE tenant_id = 'acme'"))
			require.Equal(t, 1, s.count("SELECT count(*) FROM idempotency_keys WHERE tenant_id = 'default'"))
		})
	}

	// The scope function has the last word.
	s := newService(t)
	s.serve(tenant(httpmw.Idempotency(s.units, s.keys, func(*http.Request) (idempotency.Scope, error) {
		return idempotency.Scope{Tenant: "all", Principal: "u1"}, nil
	}, &s.cfg)(http.HandlerFunc(s.pay))))
	s.post("k", "{}", header("X-Tenant", "acme"))
	require.Equal(t, "true", s.post("k", "{}", header("X-Tenant", "bolt")).header.Get("Idempotent-Replayed"))
}

// A scope function that sets the path, to a template for example, has not said anything about the method, and the other way round.
func TestMethodAndPathAreFilledInEach(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		scope     idempotency.Scope
		elsewhere change
	}{
		"with a path of its own":   {idempotency.Scope{Path: "/payments"}, method(http.MethodPatch)},
		"with a method of its own": {idempotency.Scope{Method: "any"}, at("/refunds")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			tc.scope.Principal = "u1"
			s.serve(httpmw.Idempotency(s.units, s.keys, func(*http.Request) (idempotency.Scope, error) { return tc.scope, nil }, &s.cfg)(
				http.HandlerFunc(s.pay)))
			require.Equal(t, http.StatusCreated, s.post("k", "{}").status)
			require.Equal(t, "true", s.post("k", "{}").header.Get("Idempotent-Replayed"))
			require.Equal(t, http.StatusCreated, s.post("k", "{}", tc.elsewhere).status, "another key")
			require.Equal(t, 2, s.payments())
		})
	}
}

// Everybody gets an answer of their own: users, tenants, methods, paths and anonymous callers never meet.
func TestScopesNeverCross(t *testing.T) {
	t.Parallel()
	for mode, lease := range map[string]*httpmw.LeaseConfig{"atomic": nil, "lease": {}} {
		t.Run(mode, func(t *testing.T) {
			s := newService(t)
			s.cfg.Lease = lease
			s.cfg.Methods = []string{http.MethodPost, http.MethodPut}
			s.start(s.pay)
			answers := map[string]string{}
			for range 2 {
				for _, tenant := range []string{"acme", "bolt"} {
					for _, principal := range []string{"u1", "u2", "u3", ""} {
						for _, m := range []string{http.MethodPost, http.MethodPut} {
							for _, path := range []string{"/payments", "/payments/1"} {
								scope := strings.Join([]string{tenant, principal, m, path}, " ")
								changes := []change{header("X-Tenant", tenant), header("X-Principal", principal), method(m), at(path)}
								if principal == "" {
									changes = append(changes, header("X-Anonymous", "yes"))
								}
								got := s.post("k", "{}", changes...)
								require.Equal(t, http.StatusCreated, got.status, got.body)
								if want, again := answers[scope]; again {
									require.Equal(t, want, got.body)
								}
								answers[scope] = got.body
							}
						}
					}
				}
			}
			distinct := map[string]bool{}
			for _, a := range answers {
				distinct[a] = true
			}
			require.Len(t, distinct, 32)
			require.Equal(t, 32, s.payments())
		})
	}
}

// Clients of several callers send the same key at the same time. Each client gets the answer of its own caller.
func TestCallersAtOnceNeverMeet(t *testing.T) {
	t.Parallel()
	const clients = 10
	for mode, lease := range map[string]*httpmw.LeaseConfig{"atomic": nil, "lease": {}} {
		t.Run(mode, func(t *testing.T) {
			s := newService(t)
			s.cfg.Lease = lease
			s.cfg.Wait = 10 * time.Minute
			s.start(func(w http.ResponseWriter, r *http.Request) {
				id, err := s.insert(r.Context())
				noError(t, err)
				w.WriteHeader(http.StatusCreated)
				_, _ = fmt.Fprintf(w, "%s %s %d", r.Header.Get("X-Tenant"), r.Header.Get("X-Principal"), id)
			})
			var group sync.WaitGroup
			answers := map[string][]reply{}
			for _, tenant := range []string{"acme", "bolt"} {
				for _, principal := range []string{"u1", "u2", "u3"} {
					caller := tenant + " " + principal
					mine := make([]reply, clients)
					answers[caller] = mine
					for i := range clients {
						r := s.request("k", "{}", header("X-Tenant", tenant), header("X-Principal", principal))
						group.Go(func() { mine[i], _ = send(r) })
					}
				}
			}
			group.Wait()
			for caller, got := range answers {
				for _, one := range got {
					require.Equal(t, http.StatusCreated, one.status, one.body)
					require.Equal(t, got[0].body, one.body)
					require.True(t, strings.HasPrefix(one.body, caller+" "), "%s was told %s", caller, one.body)
				}
			}
			require.EqualValues(t, len(answers), s.runs.Load())
			require.Equal(t, len(answers), s.payments())
		})
	}
}

// Mounted inside of a router, around it, or without one, the handler sees the same request.
func TestRouters(t *testing.T) {
	t.Parallel()
	for name, mount := range map[string]func(s *service, h http.Handler) http.Handler{
		"chi With": func(s *service, h http.Handler) http.Handler {
			r := chi.NewRouter()
			r.With(s.middleware).Method(http.MethodPost, "/payments/{id}", h)
			return r
		},
		"chi Use": func(s *service, h http.Handler) http.Handler {
			r := chi.NewRouter()
			r.Use(s.middleware)
			r.Method(http.MethodPost, "/payments/{id}", h)
			return r
		},
		"chi Use, mounted twice": func(s *service, h http.Handler) http.Handler {
			inner, middle, outer := chi.NewRouter(), chi.NewRouter(), chi.NewRouter()
			outer.Use(s.middleware)
			inner.Method(http.MethodPost, "/{id}", h)
			middle.Mount("/", inner)
			outer.Mount("/payments", middle)
			return outer
		},
		"chi Use in the mounted": func(s *service, h http.Handler) http.Handler {
			inner, outer := chi.NewRouter(), chi.NewRouter()
			inner.Use(s.middleware)
			inner.Method(http.MethodPost, "/{id}", h)
			outer.Mount("/payments", inner)
			return outer
		},
		"around ServeMux": func(s *service, h http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /payments/{id}", h)
			return s.middleware(mux)
		},
		"in ServeMux": func(s *service, h http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /payments/{id}", s.middleware(h))
			return mux
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			pattern := ""
			routes := mount(s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				noError(t, err)
				id := r.PathValue("id")
				if chi.RouteContext(r.Context()) != nil {
					id = chi.URLParam(r, "id")
				}
				// The first run fails for the sake of others, and must leave nothing behind.
				if left := r.Header.Get("X-Left") + w.Header().Get("X-Left"); left != "" {
					t.Errorf("the first run left %q behind", left)
				}
				r.Header.Set("X-Left", "over")
				w.Header().Set("X-Left", "over")
				if s.runs.Load() == 1 {
					_ = s.units.Do(r.Context(), func(context.Context, *uow.Unit) error { return uow.ErrConflict })
					http.Error(w, "conflict", http.StatusConflict)
					return
				}
				_, _ = io.WriteString(w, id+" "+string(body))
			}))
			s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				routes.ServeHTTP(w, r)
				if pattern == "" {
					pattern = r.Pattern // of the first request: a replay is not routed
				}
			}))
			for range 2 {
				got := s.post("k", "the body", at("/payments/17"))
				require.Equal(t, http.StatusOK, got.status, got.body)
				require.Equal(t, "17 the body", got.body)
			}
			require.EqualValues(t, 2, s.runs.Load())
			if name == "around ServeMux" {
				require.Equal(t, "POST /payments/{id}", pattern, "middlewares further out label with it")
			}
		})
	}
}

func TestWiringMistakesPanic(t *testing.T) {
	t.Parallel()
	s := newService(t)
	for name, wire := range map[string]func(){
		"manager": func() { httpmw.Idempotency(nil, s.keys, byHeader, nil) },
		"store":   func() { httpmw.Idempotency(s.units, nil, byHeader, nil) },
		"scope":   func() { httpmw.Idempotency(s.units, s.keys, nil, nil) },
		"config":  func() { httpmw.Idempotency(s.units, s.keys, byHeader, &httpmw.IdempotencyConfig{MaxBody: -2}) },
		"unit":    func() { httpmw.UnitOfWork(nil) },
		"tenant":  func() { httpmw.Tenant(nil) },
	} {
		t.Run(name, func(t *testing.T) { require.Panics(t, wire) })
	}
}

func TestConfigValidateNamesTheField(t *testing.T) {
	err := (&httpmw.IdempotencyConfig{MaxBody: -2, MaxAnswer: -2, MaxHeld: -2, Timeout: -2, RetryAfter: -1, Headers: []string{"set-cookie"}}).Validate()
	for _, field := range []string{"MaxBody", "MaxAnswer", "MaxHeld", "Timeout", "RetryAfter", "Headers"} {
		require.ErrorContains(t, err, "IdempotencyConfig."+field)
	}
	require.NoError(t, (&httpmw.IdempotencyConfig{}).Validate())

	lines := strings.Split(err.Error(), "\n")
	require.Len(t, lines, 6)
	for i, field := range []string{"MaxBody", "MaxAnswer", "MaxHeld"} {
		require.Contains(t, lines[i], field, "the same order each time")
	}
	for _, methods := range [][]string{{}, {""}, {"post"}, {http.MethodPost, "Put"}, {http.MethodGet}} {
		require.ErrorContains(t, (&httpmw.IdempotencyConfig{Methods: methods}).Validate(), "IdempotencyConfig.Methods", methods)
	}
}

// The log warns once if a key comes with a method for which keys are ignored.
func TestMethodThatIsNotProtected(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.Required = true
	s.start(s.pay)
	require.Equal(t, http.StatusCreated, s.post("", "", method(http.MethodGet)).status)
	require.Empty(t, s.log.String())
	for range 2 {
		require.Equal(t, http.StatusCreated, s.post("k", "{}", method(http.MethodPut)).status)
	}
	require.Equal(t, 1, strings.Count(s.log.String(), "its method is not in IdempotencyConfig.Methods"), s.log.String())
	require.Contains(t, s.log.String(), "method=PUT")

	s.cfg.Required = false
	s.start(s.pay)
	require.Equal(t, http.StatusCreated, s.post("k", "{}", method(http.MethodPut)).status)
	require.Equal(t, 1, strings.Count(s.log.String(), "its method is not in IdempotencyConfig.Methods"))
}

func TestMountedWithinATransaction(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.serve(httpmw.UnitOfWork(s.units)(s.middleware(http.HandlerFunc(s.pay))))
	got := s.post("k", "{}")
	kind, _ := got.problem(t)
	require.Equal(t, "middleware-misplaced", kind)
	require.Zero(t, s.runs.Load())
	require.Contains(t, s.log.String(), "mount Idempotency outside of UnitOfWork")
}

func TestContextOfTheHandlerIsThatOfTheRequest(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.serve(httpmw.Tenant(func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil })(
		httpmw.Metadata()(s.middleware(http.HandlerFunc(s.pay)))))
	got := s.post("k", "{}", header("X-Tenant", "acme"), header("X-Correlation-ID", "c1"))
	require.Equal(t, http.StatusCreated, got.status)
	require.Equal(t, "c1", got.header.Get("X-Correlation-ID"))
	require.Equal(t, 1, s.sink.count())
	sent := s.sink.committed[0]
	require.Equal(t, "acme", sent.TenantID)
	require.Equal(t, "c1", sent.Metadata[event.CorrelationID])

	again := s.post("k", "{}", header("X-Tenant", "acme"), header("X-Correlation-ID", "c2"))
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, "c2", again.header.Get("X-Correlation-ID"), "what other middlewares set is of this request")
}

// The inner one would meet the claim, or the transaction, of the outer one.
func TestMountedTwice(t *testing.T) {
	t.Parallel()
	for mode, lease := range map[string]*httpmw.LeaseConfig{"atomic": nil, "lease": {}} {
		t.Run(mode, func(t *testing.T) {
			s := newService(t)
			s.cfg.Lease = lease
			again := httpmw.Idempotency(s.units, s.keys, byHeader, &s.cfg)
			s.serve(again(s.middleware(http.HandlerFunc(s.pay))))
			for range 2 {
				got := s.post("k", "{}")
				require.Equal(t, http.StatusInternalServerError, got.status)
				kind, _ := got.problem(t)
				require.Equal(t, "middleware-misplaced", kind)
			}
			require.Contains(t, s.log.String(), "httpmw.Idempotency is mounted")
			require.Zero(t, s.runs.Load())
		})
	}
}

// A handler that hands a request of its own to the same routes is not the same request.
func TestRequestWithinARequest(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.Lease = &httpmw.LeaseConfig{}
	var routes http.Handler
	routes = s.middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.runs.Load() > 1 {
			s.pay(w, r)
			return
		}
		r.Header.Set("Idempotency-Key", "another")
		routes.ServeHTTP(w, r)
	}))
	s.serve(routes)
	require.Equal(t, http.StatusCreated, s.post("k", "{}").status)
	require.EqualValues(t, 2, s.runs.Load())
	require.Equal(t, 1, s.payments())
}
