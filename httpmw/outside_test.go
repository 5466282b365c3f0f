package httpmw_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// A recoverer that knows only the innermost writer, as Echo's does, answers for a handler that has panicked.
func TestRecovererAnswersOnTheInnerWriter(t *testing.T) {
	t.Parallel()
	for kind, mount := range kindsOfUnit() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			middleware := mount(s)
			s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inner := w
				defer func() {
					if recover() != nil {
						inner.Header().Set("X-Recovered", "yes")
						http.Error(inner, "sorry", http.StatusInternalServerError)
					}
				}()
				middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					inner = w
					w.Header().Set("X-Handler", "yes")
					w.WriteHeader(http.StatusCreated)
					if _, err := s.insert(r.Context()); err == nil {
						panic("planted")
					}
				})).ServeHTTP(w, r)
			}))
			got := s.post("k", "{}")
			require.Equal(t, http.StatusInternalServerError, got.status, got.body)
			require.Equal(t, "sorry\n", got.body)
			require.Equal(t, "yes", got.header.Get("X-Recovered"))
			require.Empty(t, got.header.Get("X-Handler"))
			require.NotContains(t, s.log.String(), tooLate)
			if kind != "key, lease" { // its handler has units of its own
				require.Zero(t, s.payments())
			}
		})
	}
}

// wrapped are writers of frameworks which let one see that an answer has begun.
type (
	ginLike struct {
		http.ResponseWriter
		written bool
	}
	echoLike struct {
		http.ResponseWriter
		before []func()
	}
	chiLike struct {
		http.ResponseWriter
		status int
	}
)

func (w *ginLike) Written() bool               { return w.written }
func (w *ginLike) Unwrap() http.ResponseWriter { return w.ResponseWriter }
func (w *ginLike) Write(p []byte) (int, error) {
	w.written = true
	return w.ResponseWriter.Write(p)
}

func (w *echoLike) Before(hook func())          { w.before = append(w.before, hook) }
func (w *echoLike) Unwrap() http.ResponseWriter { return w.ResponseWriter }
func (w *echoLike) WriteHeader(status int) {
	for _, hook := range w.before {
		hook()
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *chiLike) Status() int                 { return w.status }
func (w *chiLike) Unwrap() http.ResponseWriter { return w.ResponseWriter }
func (w *chiLike) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// A handler that answers on the writer of a middleware further out is on its way to tell its client what is not committed. Whether the recorder got
// something as well, as with gin, makes no difference: it is rolled back, and the connection is cut.
func TestAnswerPastTheMiddlewareIsCut(t *testing.T) {
	t.Parallel()
	for framework, wrap := range map[string]func(http.ResponseWriter) http.ResponseWriter{
		"gin":  func(w http.ResponseWriter) http.ResponseWriter { return &ginLike{ResponseWriter: w} },
		"echo": func(w http.ResponseWriter) http.ResponseWriter { return &echoLike{ResponseWriter: w} },
		"chi":  func(w http.ResponseWriter) http.ResponseWriter { return &chiLike{ResponseWriter: w} },
	} {
		for kind, mount := range kindsOfUnit() {
			for _, both := range []string{"", "recorded too"} {
				t.Run(framework+"/"+kind+"/"+both, func(t *testing.T) {
					t.Parallel()
					s := newService(t)
					middleware := mount(s)
					s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						outer := wrap(w)
						defer func() { _ = recover() }() // as recoverers do, also with http.ErrAbortHandler
						middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							_, err := s.insert(r.Context())
							noError(t, err)
							if both != "" {
								w.WriteHeader(http.StatusCreated)
							}
							outer.WriteHeader(http.StatusCreated)
							_, _ = outer.Write([]byte("{}"))
						})).ServeHTTP(outer, r)
					}))
					got, err := send(s.request("k", "{}"))
					require.Error(t, err, "the client was told %d %s", got.status, got.body)
					require.Contains(t, s.log.String(), "from outside of this middleware")
					require.Zero(t, s.count("SELECT count(*) FROM idempotency_keys WHERE status IS NOT NULL"))
					if kind != "key, lease" {
						require.Zero(t, s.payments())
					}
				})
			}
		}
	}
}

// An answer that is written too late reaches nobody, and is logged once a minute for each route.
func TestLateWritesAreLoggedAtABoundedRate(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var writers []http.ResponseWriter
	mux := http.NewServeMux()
	h := func(w http.ResponseWriter, _ *http.Request) {
		writers = append(writers, w)
		w.WriteHeader(http.StatusCreated)
	}
	mux.HandleFunc("POST /payments", h)
	mux.HandleFunc("POST /others", h)
	units := uow.New(s.db.DB, &uow.Config{Source: "test", Telemetry: telemetry.Config{Logger: slog.New(slog.NewTextHandler(s.log, nil))}}, s.sink)
	s.serve(httpmw.UnitOfWork(units)(mux))
	for range 2 {
		require.Equal(t, http.StatusCreated, s.post("", "{}").status)
		require.Equal(t, http.StatusCreated, s.post("", "{}", at("/others")).status)
	}
	write := func() {
		for _, w := range writers {
			w.WriteHeader(http.StatusInternalServerError)
			n, err := w.Write([]byte("sorry"))
			require.Zero(t, n)
			require.ErrorContains(t, err, "the handler has already returned")
		}
	}
	synctest.Test(t, func(t *testing.T) {
		for n := 1; n <= 3; n++ {
			write()
			write()
			require.Equal(t, 2*n, strings.Count(s.log.String(), tooLate), s.log)
			time.Sleep(time.Minute) // of synctest
		}
	})
	require.Contains(t, s.log.String(), `level=ERROR msg="oncebox: `+tooLate)
	require.Contains(t, s.log.String(), `route="POST /others"`)
}

// A framework that has taken the error of a deadlock leaves a silent handler behind: it is run again, like a handler that answered 500.
func TestSilentHandlerIsRunAgainAfterAConflict(t *testing.T) {
	t.Parallel()
	for kind, mount := range kindsOfUnit() {
		if kind == "key, lease" || kind == "key, run once" {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.serve(mount(s)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if s.runs.Add(1) == 1 {
					_ = s.units.Do(r.Context(), func(context.Context, *uow.Unit) error { return uow.ErrConflict })
					return
				}
				w.WriteHeader(http.StatusCreated)
			})))
			require.Equal(t, http.StatusCreated, s.post("k", "{}").status, s.log)
			require.EqualValues(t, 2, s.runs.Load())
		})
	}
}

// Some routers, Echo for example, wrap a handler anew for each request: what is said once for a route is said once nevertheless.
func TestMiddlewareThatIsAppliedForEachRequest(t *testing.T) {
	t.Parallel()
	s := newService(t)
	once := httpmw.Idempotency(s.units, s.keys, byHeader, &s.cfg)
	s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })).ServeHTTP(w, r)
	}))
	s.post("k1", "{}")
	s.post("k2", "{}")
	require.Equal(t, 1, strings.Count(s.log.String(), unused))
}
