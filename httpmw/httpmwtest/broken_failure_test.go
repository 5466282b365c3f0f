package httpmwtest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
)

// recovered is a proxy that answers panics.
func recovered(answer func(w http.ResponseWriter, r *http.Request)) fault {
	return fault{front: func(_ *service, next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				if recover() != nil {
					answer(w, r)
				}
			}()
			give(w, through(next, r))
		})
	}}
}

func brokenFailures() map[string][]broken {
	is := func(code int) func(a *httptest.ResponseRecorder) bool {
		return func(a *httptest.ResponseRecorder) bool { return a.Code == code }
	}
	plain := func(text string, code int) func(w http.ResponseWriter, r *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, code) }
	}
	return map[string][]broken{
		"a body too large": {
			{"is taken", fault{config: func(c *httpmw.IdempotencyConfig) { c.MaxBody *= 2 }}, "a body that is too large"},
			{"is taken in chunks", requests(func(r *http.Request) {
				if r.ContentLength < 0 {
					setBody(r, strings.TrimSpace(bodyOf(r)))
				}
			}), "a body that is too large, chunked"},
			{"is cut off", requests(func(r *http.Request) {
				if body := bodyOf(r); len(body) > maxBody {
					setBody(r, body[:maxBody])
				}
			}), "a body that is too large"},
			{"begins too early", fault{config: func(c *httpmw.IdempotencyConfig) { c.MaxBody-- }}, "it should have been executed"},
			{"400", problems("too-large", func(a *httptest.ResponseRecorder) { a.Code = 400 }), "a body that is too large"},
			{"may be retried", promising("too-large", true), "whether the problem is retryable"},
			{"is executed and refused", twice(status(http.StatusRequestEntityTooLarge)), "committed executions"},
		},
		"a body that ends too early": {
			{"counts as whole", requests(func(r *http.Request) { setBody(r, bodyOf(r)) }), "that ends too early"},
			{"takes the key", stuck(is(http.StatusBadRequest)), "it should have been executed"},
			{"is executed and refused", twice(status(http.StatusBadRequest)), "committed executions"},
			{"is a request of its own", fault{front: func(_ *service, next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.ReadAll(r.Body); err != nil {
						setBody(r, "{}")
						through(next, r)
						http.Error(w, "too short", http.StatusBadRequest)
						return
					}
					next.ServeHTTP(w, r)
				})
			}}, "it should have been executed"},
		},
		"a conflict is answered where it is to be": {
			{"it is run again", fault{config: func(c *httpmw.IdempotencyConfig) { c.RunOnce = false }}, "the handler was run again"},
			{"locks the key", stuck(is(http.StatusConflict)), "it should have been executed"},
			{"is committed", twice(status(http.StatusConflict)), "committed executions"},
			{"works for retries", twice(replayed), "committed executions"},
		},
		"a panic frees the key": {
			{"locks it", stuck(func(*httptest.ResponseRecorder) bool { return false }), "it should have been executed"},
			{"is a success", recovered(plain("fine", http.StatusOK)), "after a panic"},
			{"is a replay", recovered(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Idempotent-Replayed", "true")
				plain("sorry", http.StatusInternalServerError)(w, r)
			}), "a panic is replayed"},
			{"is never answered", recovered(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), "the connection stays open"},
			{"is committed", fault{front: func(s *service, next http.Handler) http.Handler {
				return recovered(func(_ http.ResponseWriter, r *http.Request) {
					_, _ = s.insert(r.Context())
					panic(http.ErrAbortHandler)
				}).front(s, next)
			}}, "committed executions"},
			{"is never over", requests(func(r *http.Request) { setKey(r, newKey()) }), "was not answered"},
		},
		"work that cannot be committed": {
			{"is a success", problems("transaction-failed", func(a *httptest.ResponseRecorder) { a.Code = 201 }), "the status of the refusal"},
			{"is not to be retried", promising("transaction-failed", false), "whether the problem is retryable"},
			{"not when to come again", problems("transaction-failed", func(a *httptest.ResponseRecorder) { a.Header().Del("Retry-After") }), "Retry-After"},
			{"locks the key", stuck(is(http.StatusServiceUnavailable)), "it should have been executed"},
			{"is done nevertheless", twice(status(http.StatusServiceUnavailable)), "committed executions"},
			{"is kept", cached(keyOf, nil), "it should have been executed"},
		},
		"a conflict is run again": {
			{"is the client's matter", fault{config: func(c *httpmw.IdempotencyConfig) { c.RunOnce = true }}, "it should have been executed"},
			{"works twice", twice(status(http.StatusCreated)), "committed executions"},
		},
		"without the store nothing is executed": {
			{"it is", fault{front: func(s *service, next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/down" {
						s.pay(http.StatusCreated)(w, r)
						return
					}
					next.ServeHTTP(w, r)
				})
			}}, "the status of the refusal"},
			{"500", problems("store-unavailable", func(a *httptest.ResponseRecorder) { a.Code = 500 }), "the status of the refusal"},
			{"is not to be retried", promising("store-unavailable", false), "whether the problem is retryable"},
			{"not when to come again", problems("store-unavailable", func(a *httptest.ResponseRecorder) { a.Header().Del("Retry-After") }), "Retry-After"},
			{"is executed and refused", twice(status(http.StatusServiceUnavailable)), "committed executions"},
		},
		"an expired key is a new one": {
			{"it never expires", fault{store: func(c *idempotency.Config) { c.TTL = time.Hour }}, "the end of the answer never came true"},
			{"it is over at once", fault{store: func(c *idempotency.Config) { c.TTL = time.Microsecond }}, "executed again, or changed"},
			{"it is refused", fault{front: func(s *service, next http.Handler) http.Handler {
				var n notes
				return answers(func(_ *service, r *http.Request, a *httptest.ResponseRecorder) {
					if a.Header().Get("Idempotent-Replayed") == "" && n.again(keyOf(r)) {
						a.Code = http.StatusGone
					}
				}).front(s, next)
			}}, "an expired key"},
			{"the old answer without saying so", fault{front: func(s *service, next http.Handler) http.Handler {
				var n notes
				return answers(func(_ *service, r *http.Request, a *httptest.ResponseRecorder) {
					if first := n.first(keyOf(r), a.Body.String()); a.Header().Get("Idempotent-Replayed") == "" {
						a.Body.Reset()
						a.Body.WriteString(first)
					}
				}).front(s, next)
			}}, "two executions have one answer"},
			{"the new answer is not kept", fault{front: func(s *service, next http.Handler) http.Handler {
				var n notes
				return answers(func(s *service, r *http.Request, a *httptest.ResponseRecorder) {
					if a.Header().Get("Idempotent-Replayed") == "" && n.again(keyOf(r)) {
						s.exec("DELETE FROM idempotency_keys")
					}
				}).front(s, next)
			}}, "executed again, or changed"},
		},
	}
}
