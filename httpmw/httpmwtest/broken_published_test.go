package httpmwtest

import (
	"net/http"
	"net/http/httptest"
	"strings"
)

func brokenPages() map[string][]broken {
	pages := func(end string, change func(a *httptest.ResponseRecorder)) fault {
		return answers(func(_ *service, r *http.Request, a *httptest.ResponseRecorder) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, end) {
				change(a)
			}
		})
	}
	missing := func(a *httptest.ResponseRecorder) { a.Code = http.StatusNotFound }
	plain := func(a *httptest.ResponseRecorder) { a.Header().Set("Content-Type", "text/plain") }
	return map[string][]broken{
		"problems are pages": {
			{"there are none", pages("", missing), "nothing is published"},
			{"no index", pages("/problems/", missing), "nothing is published at /problems/"},
			{"not this one", pages("key-in-progress", missing), "nothing is published at /problems/idempotency-key-in-progress"},
			{"no fragment", pages("openapi.json", missing), "nothing is published at /problems/openapi.json"},
			{"an index in plain text", pages("/problems/", plain), "what the index is"},
			{"a page in plain text", pages("key-reused", plain), "what the page of"},
			{"one page for all", pages("key-reused", func(a *httptest.ResponseRecorder) { rewrite(a, "key-reused", "key") }), "the page of another problem"},
			{"one is not named", pages("/problems/", func(a *httptest.ResponseRecorder) { rewrite(a, "key-reused", "key") }), "the index does not name it"},
			{"the fragment is HTML", pages("openapi.json", func(a *httptest.ResponseRecorder) { rewrite(a, "{", "<") }), "openapi.json is not JSON"},
			{"no parameter", pages("openapi.json", func(a *httptest.ResponseRecorder) {
				rewrite(a, `"parameters"`, `"others"`)
			}), "openapi.json has no parameter"},
			{"no schema", pages("openapi.json", func(a *httptest.ResponseRecorder) { rewrite(a, `"schemas"`, `"others"`) }), "openapi.json has no schema"},
		},
	}
}
