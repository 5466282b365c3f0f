package httpmwtest

import (
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/oncebox/oncebox/httpmw"
)

func brokenAnswers() map[string][]broken {
	all := map[string][]broken{
		"a retry gets the first answer": {
			{"executes again", requests(func(r *http.Request) { setKey(r, newKey()) }), "executed again, or changed"},
			{"keeps nothing", answers(func(s *service, _ *http.Request, _ *httptest.ResponseRecorder) {
				s.exec("DELETE FROM idempotency_keys")
			}), "executed again, or changed"},
			{"200 for a retry", replays(func(_ *http.Request, a *httptest.ResponseRecorder) { a.Code = http.StatusOK }), "the retry's status"},
			{"adds a line", replays(func(_ *http.Request, a *httptest.ResponseRecorder) { a.Body.WriteByte('\n') }), "the retry's body"},
			{"formats JSON", replays(func(_ *http.Request, a *httptest.ResponseRecorder) { rewrite(a, " ", "") }), "the retry's body"},
			{"loses Location", replays(func(_ *http.Request, a *httptest.ResponseRecorder) { a.Header().Del("Location") }), "Location of the retry"},
			{"works for retries", twice(replayed), "committed executions"},
			{"knows one key", requests(func(r *http.Request) { setKey(r, "one") }), "it was replayed"},
			{"knows one answer", cached(func(*http.Request) string { return "one" }, nil), "a replay does not say"},
		},
		"replays say so and nothing else does": {
			{"never", replays(unmarked), "does not say that it is one"},
			{
				"always",
				answers(func(_ *service, _ *http.Request, a *httptest.ResponseRecorder) { marked(a) }), "it was replayed, and should have been executed",
			},
			{"false for the first", answers(func(_ *service, _ *http.Request, a *httptest.ResponseRecorder) {
				if a.Header().Get("Idempotent-Replayed") == "" {
					a.Header().Set("Idempotent-Replayed", "false")
				}
			}), "it was replayed, and should have been executed"},
			{
				"yes",
				replays(func(_ *http.Request, a *httptest.ResponseRecorder) { a.Header().Set("Idempotent-Replayed", "yes") }), "does not say that it is one",
			},
			{"as the handler says", answers(func(_ *service, r *http.Request, a *httptest.ResponseRecorder) {
				if r.URL.Path == "/rich" {
					marked(a)
				}
			}), "because its handler says so"},
			{"mismatches", problems("key-reused", marked), "a refusal says"},
			{"invalid keys", problems("key-invalid", marked), "a refusal says"},
		},
		"headers that a route names are replayed": {
			{"they are not", fault{config: func(c *httpmw.IdempotencyConfig) { c.Headers = nil }}, extraHeader + " of the retry"},
			{"as they are now", replays(func(_ *http.Request, a *httptest.ResponseRecorder) {
				a.Header().Set(extraHeader, newKey())
			}), extraHeader + " of the retry"},
			{"they are not there", answers(func(_ *service, _ *http.Request, a *httptest.ResponseRecorder) {
				a.Header().Del(extraHeader)
			}), "Extra is answered without"},
		},
		"problems are JSON for clients that take JSON alone": {
			{"always problem+json", requests(func(r *http.Request) { r.Header.Del("Accept") }), "for Accept: application/json"},
			{"always JSON", requests(func(r *http.Request) { r.Header.Set("Accept", jsonMedia) }), "the content type of a refusal for Accept"},
			{"other JSON", answers(func(_ *service, _ *http.Request, a *httptest.ResponseRecorder) {
				if a.Header().Get("Content-Type") == jsonMedia && a.Code >= 400 {
					rewrite(a, `"retryable"`, `"again"`)
				}
			}), "does not say whether it is retryable"},
			{"plain text", answers(func(_ *service, _ *http.Request, a *httptest.ResponseRecorder) {
				if a.Header().Get("Content-Type") == jsonMedia && a.Code >= 400 {
					rewrite(a, "{", "<")
				}
			}), "the problem is not JSON"},
		},
		"headers of the moment are not replayed": {
			{"two dates", replays(func(_ *http.Request, a *httptest.ResponseRecorder) {
				a.Header()["Date"] = []string{"Sat, 01 Jan 2000 00:00:00 GMT", "Sun, 02 Jan 2000 00:00:00 GMT"}
			}), "Date of the retry"},
		},
		"an answer too large to keep": {
			{
				"refuses the first client",
				fault{config: func(c *httpmw.IdempotencyConfig) { c.MaxHeld = maxAnswer }}, "the first client gets the whole answer",
			},
			{"executes again", remembering(func(n *notes, r *http.Request) {
				if n.again(keyOf(r)) {
					setKey(r, newKey())
				}
			}), "the status of the refusal"},
			{"replays what fits", cached(keyOf, func(a *httptest.ResponseRecorder) { a.Body.Truncate(100); marked(a) }), "the status of the refusal"},
			{"loses Location", problems("not-replayable", func(a *httptest.ResponseRecorder) { a.Header().Del("Location") }), "Location says what was made"},
			{"says it may be retried", promising("not-replayable", true), "whether the problem is retryable"},
			{"works for retries", twice(status(http.StatusGone)), "committed executions"},
		},
		"an answer that cannot be held": {
			{"is sent in part", problems("answer-not-held", func(a *httptest.ResponseRecorder) { a.Code = http.StatusOK }), "the status of the refusal"},
			{"is committed", twice(status(http.StatusInternalServerError)), "committed executions"},
			{
				"blocks the key",
				stuck(func(a *httptest.ResponseRecorder) bool { return a.Code == http.StatusInternalServerError }), "the status of the refusal",
			},
		},
	}
	for _, name := range storedHeaders() {
		all["headers that describe the answer are replayed"] = append(all["headers that describe the answer are replayed"], broken{
			"loses " + name, replays(func(_ *http.Request, a *httptest.ResponseRecorder) { a.Header().Del(name) }), name + " of the retry",
		})
	}
	for _, name := range []string{"Set-Cookie", "Www-Authenticate", "X-Request-Id"} {
		all["headers of the moment are not replayed"] = append(all["headers of the moment are not replayed"], broken{
			"replays " + name, fault{front: func(s *service, next http.Handler) http.Handler {
				var n notes
				return answers(func(_ *service, r *http.Request, a *httptest.ResponseRecorder) {
					a.Header().Set(name, n.first(keyOf(r), a.Header().Get(name)))
				}).front(s, next)
			}}, name + " is of the first answer only",
		})
	}
	all["headers that describe the answer are replayed"] = append(all["headers that describe the answer are replayed"], broken{
		"the first of two links", replays(func(_ *http.Request, a *httptest.ResponseRecorder) {
			a.Header()["Link"] = a.Header()["Link"][:1]
		}), "Link of the retry",
	}, broken{
		"both links in one line", replays(func(_ *http.Request, a *httptest.ResponseRecorder) {
			a.Header().Set("Link", strings.Join(a.Header()["Link"], ", "))
		}), "Link of the retry",
	})
	return all
}
