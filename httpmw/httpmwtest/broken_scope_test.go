package httpmwtest

import (
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
)

func brokenScopes() map[string][]broken {
	unscoped := func(change func(r *http.Request, scope *idempotency.Scope)) fault { return fault{scope: change} }
	return map[string][]broken{
		"callers never meet": {
			{"one user", unscoped(func(_ *http.Request, s *idempotency.Scope) { s.Principal = "one" }), "it was replayed"},
			{"one tenant", unscoped(func(_ *http.Request, s *idempotency.Scope) { s.Tenant = "one" }), "it was replayed"},
			{"anonymous", unscoped(func(_ *http.Request, s *idempotency.Scope) { s.Principal, s.Anonymous = "", true }), "it was replayed"},
			{"one answer", cached(keyOf, nil), "two executions have one answer"},
			{"one answer after the first round", remembering(func(n *notes, r *http.Request) {
				if n.again(keyOf(r) + r.Header.Get("Authorization")) {
					r.Header.Set("Authorization", n.first(keyOf(r), r.Header.Get("Authorization")))
				}
				n.first(keyOf(r), r.Header.Get("Authorization"))
			}), "the retry's body"},
		},
		"another token of the same caller": {
			{"the token counts", unscoped(func(r *http.Request, s *idempotency.Scope) {
				s.Principal = strings.ReplaceAll(r.Header.Get("Authorization"), " ", "-")
			}), "executed again, or changed"},
		},
		"a key needs a principal": {
			{"anybody will do", unscoped(func(_ *http.Request, s *idempotency.Scope) { s.Anonymous = s.Principal == "" }), "the status of the refusal"},
			{"all are one", unscoped(func(_ *http.Request, s *idempotency.Scope) {
				if s.Principal == "" {
					s.Principal = "nobody"
				}
			}), "the status of the refusal"},
			{"no challenge", problems("principal-missing", func(a *httptest.ResponseRecorder) {
				a.Header().Del("WWW-Authenticate")
			}), "WWW-Authenticate of a 401"},
			{"400", problems("principal-missing", func(a *httptest.ResponseRecorder) { a.Code = 400 }), "the status of the refusal"},
			{"is executed and refused", twice(status(http.StatusUnauthorized)), "committed executions"},
		},
		"a key needs a tenant": {
			{"the default will do", fault{config: func(c *httpmw.IdempotencyConfig) { c.RequireTenant = false }}, "the status of the refusal"},
			{"403", problems("scope-invalid", func(a *httptest.ResponseRecorder) { a.Code = 403 }), "the status of the refusal"},
			{"is executed and refused", twice(status(http.StatusBadRequest)), "committed executions"},
		},
		"replays are authorised": {
			{"the cache comes first", cached(keyOf, marked), "may not have its answer"},
			{"the refusal tells the answer", fault{front: func(s *service, next http.Handler) http.Handler {
				var n notes
				return answers(func(_ *service, r *http.Request, a *httptest.ResponseRecorder) {
					if first := n.first(keyOf(r), a.Body.String()); a.Code == http.StatusForbidden {
						a.Body.WriteString(first)
					}
				}).front(s, next)
			}}, "has got its answer"},
			{"the refusal takes the key", stuck(func(a *httptest.ResponseRecorder) bool { return a.Code == http.StatusForbidden }), "the retry's status"},
		},
		"the same key elsewhere is another": {
			{
				"the path does not count",
				unscoped(func(r *http.Request, s *idempotency.Scope) { s.Method, s.Path = r.Method, "all" }), "it should have been executed",
			},
			{
				"the method does not count",
				unscoped(func(r *http.Request, s *idempotency.Scope) { s.Method, s.Path = "all", r.URL.Path }), "it should have been executed",
			},
			{"one answer for all paths", cached(keyOf, marked), "it was replayed"},
			{"one answer in secret", cached(keyOf, nil), "two executions have one answer"},
		},
	}
}
