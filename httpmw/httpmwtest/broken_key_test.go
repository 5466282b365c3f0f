package httpmwtest

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/httpmw"
)

// only is a proxy that refuses the keys for which this is not true.
func only(good func(key string) bool) fault {
	return fault{front: func(_ *service, next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !good(r.Header.Get("Idempotency-Key")) {
				http.Error(w, "no", http.StatusBadRequest)
				return
			}
			next.ServeHTTP(w, r)
		})
	}}
}

func brokenKeys() map[string][]broken {
	all := map[string][]broken{
		"raw and quoted are one key": {
			{"two keys", requests(func(r *http.Request) {
				if strings.HasPrefix(r.Header.Get("Idempotency-Key"), `"`) {
					setKey(r, keyOf(r)+"-quoted")
				}
			}), "executed again, or changed"},
			{"escapes are kept", requests(func(r *http.Request) {
				if key := r.Header.Get("Idempotency-Key"); strings.HasPrefix(key, `"`) {
					setKey(r, strings.ReplaceAll(key, `\`, `\\`))
				}
			}), "executed again, or changed"},
		},
		"keys of every kind are taken": {
			{"UUIDs only", only(func(key string) bool { return uuid.Validate(key) == nil }), "is a key"},
			{"from 20 characters on", only(func(key string) bool { return len(key) >= 20 }), "one character is a key"},
			{"to 254", only(func(key string) bool { return len(key) != 255 }), "255 characters is a key"},
			{"to 254 in quotes", only(func(key string) bool { return len(key) != 257 }), "255 in quotes is a key"},
			{"letters and digits", only(func(key string) bool { return !strings.ContainsAny(key, ":/") }), "is a key"},
			{"no words", only(func(key string) bool { return !strings.Contains(key, " ") }), "quoted, with the rest is a key"},
			{"quoted only", only(func(key string) bool { return strings.HasPrefix(key, `"`) }), "is a key"},
			{"raw only", only(func(key string) bool { return !strings.HasPrefix(key, `"`) }), "is a key"},
			{"not kept", requests(func(r *http.Request) { setKey(r, newKey()) }), "this was a retry"},
		},
		"the case of a key counts": {
			{"it does not", requests(func(r *http.Request) { setKey(r, strings.ToLower(keyOf(r))) }), "it was replayed"},
		},
		"a required key is missing": {
			{"is executed", fault{config: func(c *httpmw.IdempotencyConfig) { c.Required = false }}, "the status of the refusal"},
			{"gets one", requests(func(r *http.Request) {
				if keyOf(r) == "" {
					setKey(r, newKey())
				}
			}), "the status of the refusal"},
			{"is executed and refused", twice(status(http.StatusBadRequest)), "committed executions"},
			{"no page is named", problems("key-missing", func(a *httptest.ResponseRecorder) { a.Header().Del("Link") }), "Link of a missing key"},
			{
				"is called invalid",
				problems("key-missing", func(a *httptest.ResponseRecorder) { rewrite(a, "key-missing", "key-invalid") }), "the problem's type",
			},
		},
		"keys have a least length": {
			{"any", fault{config: func(c *httpmw.IdempotencyConfig) { c.MinKey = 1 }}, "the status of the refusal"},
			{"one more", fault{config: func(c *httpmw.IdempotencyConfig) { c.MinKey = minKey + 1 }}, "it should have been executed"},
			{"quotes are a part of the key", requests(func(r *http.Request) {
				if key := r.Header.Get("Idempotency-Key"); len(key) >= minKey && strings.HasPrefix(key, `"`) {
					setKey(r, strings.ReplaceAll(key, `"`, "-"))
				}
			}), "the status of the refusal"},
			{"is executed and refused", twice(status(http.StatusBadRequest)), "committed executions"},
		},
		"methods that are keyed": {
			{"POST alone", fault{config: func(c *httpmw.IdempotencyConfig) { c.Methods = []string{http.MethodPost} }}, "was executed again"},
			{"not DELETE", requests(func(r *http.Request) {
				if r.Method == http.MethodDelete {
					setKey(r, newKey())
				}
			}), "DELETE was executed again"},
			{"the content does not count", requests(func(r *http.Request) { r.URL.RawQuery = "" }), "the status of the refusal"},
			{"works for retries", twice(replayed), "committed executions"},
			{"another body", replays(func(_ *http.Request, a *httptest.ResponseRecorder) { a.Body.WriteByte(' ') }), "the retry's body"},
		},
		"keys in quotes only": {
			{"raw ones, too", fault{config: func(c *httpmw.IdempotencyConfig) { c.StrictKey = false }}, "the status of the refusal"},
			{"none", only(func(string) bool { return false }), "the content type of the refusal"},
			{"raw only", requests(func(r *http.Request) { setKey(r, keyOf(r)) }), "it should have been executed"},
			{"is executed and refused", twice(status(http.StatusBadRequest)), "committed executions"},
		},
		"an optional key is missing": {
			{"is required", fault{config: func(c *httpmw.IdempotencyConfig) { c.Required = true }}, "it should have been executed"},
			{"is one for all", requests(func(r *http.Request) {
				if keyOf(r) == "" {
					setKey(r, "none")
				}
			}), "it was replayed"},
			{"is answered from memory", cached(func(r *http.Request) string { return "all" + keyOf(r) }, nil), "two executions have one answer"},
			{"counts for nothing", requests(func(r *http.Request) { r.Header.Del("Idempotency-Key") }), "executed again, or changed"},
		},
	}
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		all["other methods are untouched"] = append(all["other methods are untouched"],
			broken{method + " counts", fault{front: func(_ *service, next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					head := r.Method == http.MethodHead
					if r.Method == method && keyOf(r) != "" {
						r.Method = http.MethodPost
					}
					a := through(next, r)
					if head {
						a.Body.Reset()
					}
					give(w, a)
				})
			}}, method + " is"},
			broken{method + " needs a sound key", fault{front: func(_ *service, next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == method && len(r.Header["Idempotency-Key"]) > 1 {
						http.Error(w, "no", http.StatusBadRequest)
						return
					}
					next.ServeHTTP(w, r)
				})
			}}, method + " is not concerned with keys"})
	}
	all["other methods are untouched"] = append(all["other methods are untouched"],
		broken{"answered from memory", cached(func(r *http.Request) string {
			if r.Method == http.MethodPut {
				return keyOf(r)
			}
			return ""
		}, nil), "two executions have one answer"})
	all["malformed keys are refused"] = brokenRefusals()
	return all
}

// brokenRefusals take each of the malformed keys for a good one, or refuse them badly.
func brokenRefusals() []broken {
	unique := regexp.MustCompile(`conformance-[A-Z2-7]{26}`)
	var all []broken
	for name := range malformedKeys("") {
		all = append(all, broken{name, requests(func(r *http.Request) {
			lines := r.Header["Idempotency-Key"]
			bad := malformedKeys(unique.FindString(strings.Join(lines, "")))[name]
			for i := range bad {
				bad[i] = strings.TrimSpace(bad[i]) // as net/http does
			}
			if slices.Equal(lines, bad) {
				setKey(r, newKey())
			}
		}), "a key that is"})
	}
	invalid := func(name, from, to, says string) broken {
		return broken{name, problems("key-invalid", func(a *httptest.ResponseRecorder) { rewrite(a, from, to) }), says}
	}
	return append(all,
		invalid("a type of its own", "key-invalid", "key-bad", "the problem's type"),
		invalid("another base", "/problems/", "https://example.com/", "the problem's type"),
		invalid("no title", `"title":"`, `"title":"","was":"`, "the problem has no title"),
		invalid("another status inside", `"status":400`, `"status":422`, "the problem's status"),
		invalid("not whether to retry", "retryable", "again", "does not say whether it is retryable"),
		invalid("may be retried", `"retryable":false`, `"retryable":true`, "whether the problem is retryable"),
		invalid("no JSON", "{", "<", "the problem is not JSON"),
		broken{"plain text", problems("key-invalid", func(a *httptest.ResponseRecorder) {
			a.Header().Set("Content-Type", "text/plain")
		}), "the content type of the refusal"},
		broken{"422", problems("key-invalid", func(a *httptest.ResponseRecorder) { a.Code = 422 }), "a key that is"},
		broken{"repeats the key", answers(func(_ *service, r *http.Request, a *httptest.ResponseRecorder) {
			if key := unique.FindString(keyOf(r)); key != "" && a.Code == http.StatusBadRequest {
				rewrite(a, `"retryable"`, `"key":"`+key+`","retryable"`)
			}
		}), "the problem repeats"},
		broken{"is executed and refused", twice(status(http.StatusBadRequest)), "committed executions"},
	)
}
