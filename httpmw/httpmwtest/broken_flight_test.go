package httpmwtest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
)

// busy are the keys in flight, as a proxy sees them.
type busy struct {
	mu sync.Mutex
	n  map[string]int
}

// enter returns how many others there are.
func (b *busy) enter(key string) (others int, leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n == nil {
		b.n = map[string]int{}
	}
	others = b.n[key]
	b.n[key]++
	return others, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.n[key]--
	}
}

// during is a proxy that answers requests whose keys are in flight by itself.
func during(answer func(w http.ResponseWriter, r *http.Request, next http.Handler)) fault {
	return fault{front: func(_ *service, next http.Handler) http.Handler {
		var b busy
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			others, leave := b.enter(keyOf(r))
			defer leave()
			if others > 0 {
				answer(w, r, next)
				return
			}
			next.ServeHTTP(w, r)
		})
	}}
}

// patient is a proxy that lets the requests of a key come one by one.
func patient() fault {
	return fault{front: func(_ *service, next http.Handler) http.Handler {
		var locks sync.Map
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			lock, _ := locks.LoadOrStore(keyOf(r), &sync.Mutex{})
			lock.(*sync.Mutex).Lock()
			defer lock.(*sync.Mutex).Unlock()
			next.ServeHTTP(w, r)
		})
	}}
}

type clientKey struct{}

// withClient runs the handlers with something of their client's connection, which the middleware hides from them.
func withClient(inside func(client context.Context, w http.ResponseWriter, r *http.Request, next http.Handler)) fault {
	return fault{
		front: func(_ *service, next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), clientKey{}, r.Context())))
			})
		},
		inside: func(_ *service, next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inside(r.Context().Value(clientKey{}).(context.Context), w, r, next)
			})
		},
	}
}

// leases is a proxy that makes all leases end then.
func leases(end string) fault {
	return answers(func(s *service, _ *http.Request, _ *httptest.ResponseRecorder) {
		s.exec("UPDATE idempotency_keys SET locked_until = " + end + " WHERE state = 'claimed'")
	})
}

func brokenFlights() map[string][]broken {
	fresh := during(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		setKey(r, newKey())
		next.ServeHTTP(w, r)
	})
	inFlight := func(name string, change func(a *httptest.ResponseRecorder), says string) broken {
		return broken{name, problems("key-in-progress", change), says}
	}
	unavailable := func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		http.Error(w, "busy", http.StatusServiceUnavailable)
	}
	return map[string][]broken{
		"many clients at once": {
			{"each is executed", fresh, "the clients' answers differ"},
			{"some are told nothing", during(unavailable), "the clients' answers differ"},
			{"nobody is told of the replay", replays(unmarked), "answers that are no replays"},
			{"works for retries", twice(replayed), "committed executions"},
			{
				"409 in plain text",
				during(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
					http.Error(w, "busy", http.StatusConflict)
				}), "the content type of the refusal",
			},
			{"a refusal for all", fault{config: func(c *httpmw.IdempotencyConfig) { c.MaxBody = 1 }}, "413"},
		},
		"a key in flight is a conflict": {
			{"each is executed", fresh, "both were executed"},
			{"one waits for the other", patient(), "one waited for the other"},
			{"503", during(unavailable), "503"},
			inFlight("not when to come again", func(a *httptest.ResponseRecorder) { a.Header().Del("Retry-After") }, "Retry-After"),
			inFlight("to come again at once", func(a *httptest.ResponseRecorder) { a.Header().Set("Retry-After", "0") }, "Retry-After"),
			{"not to come again", promising("key-in-progress", false), "whether the problem is retryable"},
			{"forgets the answer", answers(func(s *service, _ *http.Request, _ *httptest.ResponseRecorder) {
				s.exec("DELETE FROM idempotency_keys")
			}), "executed again, or changed"},
		},
		"another content in flight": {
			{"is executed", requests(func(r *http.Request) { mixed(r, r.URL.RawQuery) }), "was executed"},
			{"is known in flight already", during(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.URL.RawQuery == "" {
					next.ServeHTTP(w, r)
					return
				}
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(http.StatusUnprocessableEntity)
				_, _ = w.Write([]byte(`{"type":"/problems/idempotency-key-reused","title":"t","status":422,"retryable":false}`))
			}), "the status of the refusal"},
			{"does not count", requests(func(r *http.Request) { r.URL.RawQuery = "" }), "the status of the refusal"},
			{
				"is in flight for ever",
				problems("key-reused", func(a *httptest.ResponseRecorder) { a.Code = http.StatusConflict }), "the status of the refusal",
			},
		},
		"others wait for the answer": {
			{"nobody does", fault{config: func(c *httpmw.IdempotencyConfig) { c.Wait = 0 }}, "everybody waits for the answer: 409"},
			{"each is executed", fresh, "the clients' answers differ"},
			{"nobody is told of the replay", replays(unmarked), "answers that are no replays"},
			{"works for retries", twice(replayed), "committed executions"},
		},
		"others wait no longer than they may": {
			{"they wait for the answer", fault{config: func(c *httpmw.IdempotencyConfig) { c.Wait = time.Minute }}, "one waited for the other"},
			{"each is executed", fresh, "both were executed"},
			{"503", during(unavailable), "503"},
			inFlight("not when to come again", func(a *httptest.ResponseRecorder) { a.Header().Del("Retry-After") }, "Retry-After"),
			{"works for retries", twice(replayed), "committed executions"},
		},
		"a lost lease is taken over": {
			{"never", leases("clock_timestamp() + interval '1 h'"), "the end of the lease never came true"},
			{"at once", leases("clock_timestamp()"), "the status of the refusal"},
			{"with a failure", remembering(func(n *notes, r *http.Request) {
				if n.again(keyOf(r)) && n.again(keyOf(r)+"again") {
					r.Header.Set("Authorization", "Bearer acme stranger token")
				}
			}), "after the end of the lease"},
			{"works for retries", twice(replayed), "committed executions"},
		},
		"a step whose outcome is found out": {
			{"nobody asks", fault{config: func(c *httpmw.IdempotencyConfig) {
				if c.Lease != nil {
					c.Lease = &httpmw.LeaseConfig{}
				}
			}}, "it should have been executed: 503"},
			{"it is done again", fault{config: func(c *httpmw.IdempotencyConfig) {
				if c.Lease != nil {
					c.Lease.Recover = func(context.Context, *http.Request, idempotency.Unknown) (idempotency.Outcome, error) {
						return idempotency.StepNotDone(), nil
					}
				}
			}}, "it should have been executed: 502"},
			{"works for retries", twice(replayed), "committed executions"},
		},
		"a step that an operator resolves": {
			{"is unknown for ever", stuck(func(a *httptest.ResponseRecorder) bool { return a.Code == http.StatusBadGateway }), "it should have been executed"},
			{"works for retries", twice(replayed), "committed executions"},
		},
		"another content under a lease": {
			{"is in flight", fault{config: func(c *httpmw.IdempotencyConfig) { c.Lease = nil }}, "the status of the refusal"},
			{"is executed", requests(func(r *http.Request) { mixed(r, r.URL.RawQuery) }), "the status of the refusal"},
			{"does not count", requests(func(r *http.Request) { r.URL.RawQuery = "" }), "the status of the refusal"},
			{"works for retries", twice(replayed), "committed executions"},
		},
		"a step without a known outcome": {
			{"is executed again", requests(func(r *http.Request) { setKey(r, newKey()) }), "the status of the refusal"},
			{"is to be retried", promising("key-unknown", true), "whether the problem is retryable"},
			{"is a failure like others", problems("key-unknown", func(a *httptest.ResponseRecorder) {
				rewrite(a, "idempotency-key-unknown", "transaction-failed")
			}), "the problem's type"},
			{"works for retries", twice(status(http.StatusServiceUnavailable)), "committed executions"},
		},
		"a client that goes away": {
			{"takes its work along", withClient(func(client context.Context, w http.ResponseWriter, r *http.Request, next http.Handler) {
				ctx, cancel := context.WithCancel(r.Context())
				defer context.AfterFunc(client, cancel)()
				next.ServeHTTP(w, r.WithContext(ctx))
				if client.Err() != nil {
					panic(http.ErrAbortHandler)
				}
			}), "the retry was executed"},
			{"leaves its key locked", fault{front: func(_ *service, next http.Handler) http.Handler {
				var locked sync.Map
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, there := locked.Load(keyOf(r)); there {
						http.Error(w, "locked", http.StatusConflict)
						return
					}
					next.ServeHTTP(w, r)
					if r.Context().Err() != nil {
						locked.Store(keyOf(r), true)
					}
				})
			}}, "never came true"},
			{"is a failure for its retry", fault{front: func(_ *service, next http.Handler) http.Handler {
				var gone sync.Map
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, there := gone.Load(keyOf(r)); there {
						http.Error(w, "cancelled", http.StatusInternalServerError)
						return
					}
					next.ServeHTTP(w, r)
					if r.Context().Err() != nil {
						gone.Store(keyOf(r), true)
					}
				})
			}}, "the work went on without its client"},
			{"works for retries", twice(func(r *http.Request, a *httptest.ResponseRecorder) bool {
				return a.Header().Get("Idempotent-Replayed") != "" && strings.HasPrefix(r.URL.Path, "/slow")
			}), "committed executions"},
		},
	}
}
