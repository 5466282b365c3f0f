package httpmwtest

import (
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/oncebox/oncebox/httpmw"
)

func brokenContents() map[string][]broken {
	reused := func(name string, change func(a *httptest.ResponseRecorder), says string) broken {
		return broken{name, problems("key-reused", change), says}
	}
	const under = "under the same key"
	return map[string][]broken{
		"another content is refused": {
			{"is executed", requests(func(r *http.Request) { mixed(r, bodyOf(r)+r.URL.RawQuery+r.Header.Get("Content-Type")) }), under},
			{"is replayed", cached(keyOf, marked), under},
			{"the body does not count", remembering(func(n *notes, r *http.Request) {
				if body := bodyOf(r); body != "" {
					setBody(r, n.first(keyOf(r), body))
				}
			}), "another body under the same key"},
			{"no body is any body", remembering(func(n *notes, r *http.Request) {
				first := n.first(keyOf(r), bodyOf(r))
				if r.ContentLength == 0 {
					setBody(r, first)
				}
			}), "no body under the same key"},
			{"the query does not count", requests(func(r *http.Request) { r.URL.RawQuery = "" }), "another query under the same key"},
			{"the content type does not count", requests(func(r *http.Request) {
				r.Header.Set("Content-Type", "application/json")
			}), "another content type under the same key"},
			{"the preconditions do not count", requests(func(r *http.Request) {
				for _, name := range []string{"If-Match", "If-None-Match", "If-Unmodified-Since"} {
					r.Header.Del(name)
				}
			}), under},
			reused("409", func(a *httptest.ResponseRecorder) { a.Code = 409 }, under),
			reused(
				"looks like a failed validation",
				func(a *httptest.ResponseRecorder) { rewrite(a, "idempotency-key-reused", "validation") }, "the problem's type",
			),
			{"may be retried", promising("key-reused", true), "whether the problem is retryable"},
			{"tells what is stored", fault{front: func(s *service, next http.Handler) http.Handler {
				var n notes
				return answers(func(_ *service, r *http.Request, a *httptest.ResponseRecorder) {
					if first := n.first(keyOf(r), a.Body.String()); a.Code == http.StatusUnprocessableEntity {
						rewrite(a, `"retryable"`, `"stored":`+first+`,"retryable"`)
					}
				}).front(s, next)
			}}, "the problem repeats"},
			{"ends the key", answers(func(s *service, _ *http.Request, a *httptest.ResponseRecorder) {
				if a.Code == http.StatusUnprocessableEntity {
					s.exec("UPDATE idempotency_keys SET body = 'gone' WHERE body IS NOT NULL")
				}
			}), "the retry's body"},
			{"is executed and refused", twice(status(http.StatusUnprocessableEntity)), "committed executions"},
		},
		"another version is another content": {
			{"it is not", fault{config: func(c *httpmw.IdempotencyConfig) { c.APIVersion = nil }}, "the status of the refusal"},
			{"it is another key", requests(func(r *http.Request) { mixed(r, r.Header.Get("X-Version")) }), "the status of the refusal"},
			{"the first one is the last", fault{config: func(c *httpmw.IdempotencyConfig) {
				c.APIVersion = func(*http.Request) string { return newKey() }
			}}, "the retry's status"},
			{"works for refusals", twice(status(http.StatusUnprocessableEntity)), "committed executions"},
		},
		"a precondition that is added": {
			{"the first answer is kept", cached(keyOf, marked), "it should have been executed"},
			{"it does not arrive", requests(func(r *http.Request) { r.Header.Del("If-Match") }), "it should have been executed"},
			{"it makes another key", requests(func(r *http.Request) { mixed(r, r.Header.Get("If-Match")) }), "the status of the refusal"},
			{"works for refusals", twice(status(http.StatusUnprocessableEntity)), "committed executions"},
		},
		"what is excluded makes no difference": {
			{"it does", fault{config: func(c *httpmw.IdempotencyConfig) { c.Exclude = nil }}, "the retry's status"},
			{"it is executed", requests(func(r *http.Request) { mixed(r, bodyOf(r)) }), "executed again, or changed"},
			{"nothing does", cached(keyOf, marked), "the status of the refusal"},
		},
		"other words for the same content": {
			{"white space counts", requests(func(r *http.Request) { mixed(r, bodyOf(r)) }), "executed again, or changed"},
			{"the order of parameters counts", requests(func(r *http.Request) { mixed(r, r.URL.RawQuery) }), "executed again, or changed"},
			{"the case of the media type counts", requests(func(r *http.Request) { mixed(r, r.Header.Get("Content-Type")) }), "executed again, or changed"},
			{"the order of members counts", requests(func(r *http.Request) {
				mixed(r, strings.Join(strings.Fields(bodyOf(r)), "")[:10])
			}), "executed again, or changed"},
		},
	}
}
