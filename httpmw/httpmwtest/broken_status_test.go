package httpmwtest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/oncebox/oncebox/httpmw"
)

func brokenStatuses() map[string][]broken {
	all := map[string][]broken{
		"answers that stay the same are kept": {
			{"success only", answers(func(s *service, _ *http.Request, a *httptest.ResponseRecorder) {
				if a.Code >= http.StatusBadRequest {
					s.exec("DELETE FROM idempotency_keys WHERE status >= 400")
				}
			}), "was executed again"},
			{"no redirects", answers(func(s *service, _ *http.Request, a *httptest.ResponseRecorder) {
				if a.Code >= http.StatusMultipleChoices {
					s.exec("DELETE FROM idempotency_keys WHERE status BETWEEN 300 AND 399")
				}
			}), "was executed again"},
			{"with another body", replays(func(_ *http.Request, a *httptest.ResponseRecorder) { a.Body.WriteByte(' ') }), "the retry's body"},
			{"with another status", replays(func(_ *http.Request, a *httptest.ResponseRecorder) { a.Code++ }), "the retry's status"},
		},
		"a route keeps what it wants to": {
			{"it does not", fault{config: func(c *httpmw.IdempotencyConfig) { c.Keep = nil }}, "was executed again"},
			{"with another body", replays(func(_ *http.Request, a *httptest.ResponseRecorder) { a.Body.WriteByte(' ') }), "the retry's body"},
			{"its work stays", twice(status(http.StatusInternalServerError)), "committed executions"},
		},
		"refused work is undone": {
			{"it stays", fault{inside: func(s *service, next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if strings.HasPrefix(r.URL.Path, "/status/4") {
						_, _ = s.insert(context.Background()) // in a transaction of its own
					}
					next.ServeHTTP(w, r)
				})
			}}, "committed executions"},
			{
				"it stays when the server failed",
				twice(func(_ *http.Request, a *httptest.ResponseRecorder) bool { return a.Code >= 500 }), "committed executions",
			},
			{"all work is undone", answers(func(s *service, _ *http.Request, a *httptest.ResponseRecorder) {
				if a.Code < http.StatusBadRequest {
					s.exec("DELETE FROM payments WHERE id = (SELECT max(id) FROM payments)")
				}
			}), "committed executions"},
		},
	}
	for _, code := range []int{400, 402, 404, 410, 415, 422, 451, 200, 201, 202, 206, 301, 303} {
		all["answers that stay the same are kept"] = append(all["answers that stay the same are kept"],
			broken{fmt.Sprintf("%d is not", code), requests(func(r *http.Request) {
				if r.URL.Path == fmt.Sprintf("/status/%d", code) {
					setKey(r, newKey())
				}
			}), fmt.Sprintf("%d was executed again", code)})
	}
	for _, code := range []int{401, 403, 407, 408, 409, 412, 421, 423, 425, 426, 428, 429, 500, 502, 503, 504} {
		name := func(r *http.Request) string {
			if r.URL.Path == fmt.Sprintf("/status/%d", code) {
				return keyOf(r)
			}
			return ""
		}
		all["answers that may change free the key"] = append(all["answers that may change free the key"],
			broken{fmt.Sprintf("%d is kept", code), cached(name, marked), fmt.Sprintf("%d was replayed", code)},
			broken{fmt.Sprintf("%d is kept in secret", code), cached(name, nil), "two executions have one answer"})
	}
	return all
}
