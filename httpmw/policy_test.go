package httpmw_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/httpmw/policy"
	"github.com/oncebox/oncebox/idempotency"
)

// The type of a problem is an address with more about the problem, however the policy is mounted.
func TestTypesOfProblemsLeadToTheirPages(t *testing.T) {
	t.Parallel()
	for name, mount := range map[string]func(base string, pages, api http.Handler) http.Handler{
		"ServeMux": func(base string, pages, api http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle(base, pages)
			mux.Handle("/", api)
			return mux
		},
		"StripPrefix": func(base string, pages, api http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle(base, http.StripPrefix(strings.TrimSuffix(base, "/"), pages))
			mux.Handle("/", api)
			return mux
		},
		"chi": func(base string, pages, api http.Handler) http.Handler {
			r := chi.NewRouter()
			r.Mount(base, pages)
			r.Handle("/*", api)
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			s.cfg.Required, s.cfg.ProblemBase = true, "/about/keys/"
			s.serve(mount(s.cfg.ProblemBase, policy.Handler(s.keys, &s.cfg), s.middleware(http.HandlerFunc(s.pay))))
			refused := s.post("", "{}")
			var problem struct {
				Type  string `json:"type"`
				Title string `json:"title"`
			}
			require.NoError(t, json.Unmarshal([]byte(refused.body), &problem))
			require.Contains(t, refused.header.Get("Link"), "<"+problem.Type+">")
			page := s.post("", "", method(http.MethodGet), at(problem.Type))
			require.Equal(t, http.StatusOK, page.status)
			require.Equal(t, "text/html; charset=utf-8", page.header.Get("Content-Type"))
			require.Contains(t, page.body, "<h1>"+problem.Title+"</h1>")

			// Every link of the index leads somewhere.
			index := s.post("", "", method(http.MethodGet), at(s.cfg.ProblemBase))
			require.Equal(t, http.StatusOK, index.status)
			links := regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(index.body, -1)
			require.Greater(t, len(links), 10)
			for _, link := range links {
				require.Equal(t, http.StatusOK, s.post("", "", method(http.MethodGet), at(s.cfg.ProblemBase+link[1])).status, link[1])
			}
			require.Equal(t, http.StatusNotFound, s.post("", "", method(http.MethodGet), at(s.cfg.ProblemBase+"unknown")).status)
			require.Equal(t, http.StatusMethodNotAllowed, s.post("", "", at(s.cfg.ProblemBase)).status)
			head := s.post("", "", method(http.MethodHead), at(s.cfg.ProblemBase))
			require.Equal(t, http.StatusOK, head.status)
			require.Empty(t, head.body)
			require.Equal(t, index.header.Get("Content-Length"), head.header.Get("Content-Length"))
		})
	}
}

// The pattern that is published lets through what the middleware takes, and nothing else.
func TestPublishedPatternOfKeys(t *testing.T) {
	for _, cfg := range []httpmw.IdempotencyConfig{{}, {MinKey: 4}, {StrictKey: true}, {StrictKey: true, MinKey: 4}} {
		w := httptest.NewRecorder()
		policy.Handler(idempotency.NewStore(nil), &cfg).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/openapi.json", http.NoBody))
		var document struct {
			Components struct {
				Parameters struct {
					IdempotencyKey struct {
						Schema struct {
							Pattern string `json:"pattern"`
						} `json:"schema"`
					} `json:"IdempotencyKey"` //nolint:tagliatelle // OpenAPI's
				} `json:"parameters"`
			} `json:"components"`
		}
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &document))
		pattern := regexp.MustCompile(document.Components.Parameters.IdempotencyKey.Schema.Pattern)
		for _, line := range []string{
			"8e03", `"8e03"`, "payroll:2025-03", `a\bc`, `"a\\bc"`, `"say \"hi\""`, `"a, b"`, "a-c+d", "!~#", strings.Repeat("k", 255),
			strings.Repeat("k", 256), `"` + strings.Repeat(`\"`, 255) + `"`, `"` + strings.Repeat("k", 256) + `"`, "", `"`, `""`, `"k`, `k"`, `"k"x`, `"k";a=1`,
			`"a\b"`, `"a\`, "a,bc",
			"a b c", "a\x00b", "a\x7fbc", "édge", `"édge"`, "\"a\x01bc\"", "abc", `"abc"`, `"ab\""`, "abcd\n",
		} {
			require.Equal(t, httpmw.TakesKey(&cfg, line), pattern.MatchString(line), "%q", line)
		}
	}
}
