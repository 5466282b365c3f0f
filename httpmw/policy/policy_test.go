package policy_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/httpmw/policy"
	"github.com/oncebox/oncebox/idempotency"
)

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w
}

// The pages for clients say what is configured.
func TestPolicyTellsTheConfiguration(t *testing.T) {
	store := func(ttl time.Duration) *idempotency.Store { return idempotency.NewStore(&idempotency.Config{TTL: ttl}) }
	for name, tc := range map[string]struct {
		store  *idempotency.Store
		cfg    *httpmw.IdempotencyConfig
		has    []string
		hasNot []string
	}{
		"as it is": {
			store: store(0),
			has: []string{
				"POST and PATCH", "Without a key they are executed each time", "1 to 255 visible ASCII", "is 422", "are answered 409", "for 24h",
				"400, 402, 404,", "Requests have 1 MiB at most, answers 16 MiB", "larger than 1 MiB", "Location", "nothing was changed",
				"transaction-failed",
			},
			hasNot: []string{"idempotency-key-missing", "idempotency-key-unknown", "401, ", "wait for its answer", "version of the interface"},
		},
		"no limits, and no refusal is kept": {
			store:  store(0),
			cfg:    &httpmw.IdempotencyConfig{MaxBody: -1, MaxAnswer: -1, MaxHeld: -1, Keep: func(int) bool { return false }},
			has:    []string{"all below 400. Others", "Requests have any number of bytes at most, answers any number of bytes."},
			hasNot: []string{"larger than", "none"},
		},
		"all else": {
			store: store(idempotency.KeepForever),
			cfg: &httpmw.IdempotencyConfig{
				Required: true, Methods: []string{"PUT"}, MaxBody: -1, MaxAnswer: 1 << 10, MaxHeld: 1500, Headers: []string{"x-total"},
				Wait: 90 * time.Second, Exclude: []string{"/sent_at"}, APIVersion: func(*http.Request) string { return "" },
				Keep: func(status int) bool { return status == 418 }, StrictKey: true, MinKey: 8, ReusedStatus: 400,
				Lease: &httpmw.LeaseConfig{TTL: 2 * time.Minute},
			},
			has: []string{
				"PUT with", "A key is required", "8 to 255 ASCII characters in double quotes", "is 400", "wait for its answer, up to 1m30s",
				"for good", "below 400 and 418.", "any number of bytes", "answers 1500 bytes", "larger than 1 KiB", "X-Total", "/sent_at",
				"version of the interface", "for up to 2m.", "idempotency-key-missing", "idempotency-key-unknown",
			},
			hasNot: []string{"request-body-too-large", "transaction-failed", "nothing was changed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			index := get(t, policy.Handler(tc.store, tc.cfg), "/problems/").Body.String()
			for _, text := range tc.has {
				require.Contains(t, index, text)
			}
			for _, text := range tc.hasNot {
				require.NotContains(t, index, text)
			}
		})
	}
}

func TestPolicyAsOpenAPI(t *testing.T) {
	cfg := &httpmw.IdempotencyConfig{Required: true, ProblemBase: "https://api.example/problems/", ReusedStatus: 409, MaxBody: -1}
	w := get(t, policy.Handler(idempotency.NewStore(nil), cfg), "/problems/openapi.json")
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	var document map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &document))
	require.Equal(t, "3.1.0", document["openapi"])

	for _, to := range regexp.MustCompile(`"\$ref": "([^"]*)"`).FindAllStringSubmatch(w.Body.String(), -1) {
		fragment, err := url.PathUnescape(strings.TrimPrefix(to[1], "#/"))
		require.NoError(t, err)
		require.NotNil(t, dig(document, strings.Split(fragment, "/")...), to[1])
	}
	parameter := dig(document, "components", "parameters", "IdempotencyKey")
	require.Equal(t, true, dig(parameter, "required"))
	require.Equal(t, "header", dig(parameter, "in"))
	conflict := dig(document, "components", "responses", "Idempotency409")
	require.NotNil(t, dig(conflict, "headers", "Retry-After"))
	text, err := json.Marshal(conflict)
	require.NoError(t, err)
	require.Contains(t, string(text), "https://api.example/problems/idempotency-key-in-progress")
	require.Contains(t, string(text), "https://api.example/problems/idempotency-key-reused", "where it is configured to be")
	require.Nil(t, dig(document, "components", "responses", "Idempotency422"))
	require.Nil(t, dig(document, "components", "responses", "Idempotency413"))
	require.Nil(t, dig(document, "components", "responses", "Idempotency400", "headers"))
	require.NotNil(t, dig(document, "components", "responses", "Idempotency401", "headers", "WWW-Authenticate"))

	rules := dig(document, "x-idempotency")
	require.InDelta(t, 86400, dig(rules, "ttl_seconds"), 0)
	require.Nil(t, dig(rules, "max_request_bytes"))
	require.InDelta(t, 1<<20, dig(rules, "max_stored_bytes"), 0)
	require.Equal(t, "atomic", dig(rules, "mode"))
	require.Contains(t, dig(rules, "released_statuses"), "503")
	require.Contains(t, dig(rules, "stored_statuses"), "404")
}

func dig(v any, names ...string) any {
	for _, name := range names {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

func TestPolicyThatIsWiredWrongly(t *testing.T) {
	require.Panics(t, func() { policy.Handler(nil, nil) })
	require.Panics(t, func() { policy.Handler(idempotency.NewStore(nil), &httpmw.IdempotencyConfig{MaxBody: -2}) })
}

// Under a lease nothing is rolled back, and no page says so.
func TestPageOfAnAnswerThatIsNotHeld(t *testing.T) {
	page := func(cfg *httpmw.IdempotencyConfig) string {
		return get(t, policy.Handler(idempotency.NewStore(nil), cfg), "/problems/answer-not-held").Body.String()
	}
	require.Contains(t, page(nil), "The work was rolled back.")
	leased := page(&httpmw.IdempotencyConfig{Lease: &httpmw.LeaseConfig{}})
	require.NotContains(t, leased, "rolled back")
	require.Contains(t, leased, "The request was executed and failed.")
}

// The format of errors that a service writes itself is described by the service.
func TestPolicyDoesNotDescribeTheFormatOfTheService(t *testing.T) {
	cfg := &httpmw.IdempotencyConfig{Refuse: func(http.ResponseWriter, *http.Request, httpmw.Problem) {}}
	w := get(t, policy.Handler(idempotency.NewStore(nil), cfg), "/problems/openapi.json")
	require.NotContains(t, w.Body.String(), "problem+json")
	require.NotContains(t, w.Body.String(), "IdempotencyProblem")
	require.Contains(t, w.Body.String(), "Idempotency409")
}
