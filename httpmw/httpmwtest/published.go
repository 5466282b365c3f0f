package httpmwtest

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/stretchr/testify/require"
)

// testPublished follows the links of all problem types that a client can provoke.
func testPublished(s *session) {
	page := func(path string) reply {
		path = strings.TrimPrefix(path, s.target.URL)
		got := s.send(Request{Method: http.MethodGet, Path: path})
		require.Equal(s.t, http.StatusOK, got.status, "nothing is published at %s", path)
		return got
	}
	index := page(s.target.ProblemBase)
	require.Contains(s.t, index.header.Get(contentType), "text/html", "what the index is")
	kinds := []string{
		"idempotency-key-invalid", "idempotency-key-reused", "idempotency-key-in-progress", "idempotency-key-not-replayable",
		"idempotency-store-unavailable", "transaction-failed", "request-body-too-large",
	}
	if s.target.Required != nil {
		kinds = append(kinds, "idempotency-key-missing")
	}
	for _, kind := range kinds {
		got := page(s.target.ProblemBase + kind)
		require.Contains(s.t, got.header.Get(contentType), "text/html", "what the page of %s is", kind)
		require.Contains(s.t, got.body, kind, "the page of another problem")
		require.Contains(s.t, index.body, kind, "the index does not name it")
	}
	var fragment struct {
		Components struct {
			Parameters map[string]any `json:"parameters"`
			Schemas    map[string]any `json:"schemas"`
		} `json:"components"`
	}
	text := page(s.target.ProblemBase + "openapi.json").body
	require.NoError(s.t, json.Unmarshal([]byte(text), &fragment), "openapi.json is not JSON")
	require.NotEmpty(s.t, fragment.Components.Parameters, "openapi.json has no parameter")
	require.NotEmpty(s.t, fragment.Components.Schemas, "openapi.json has no schema")
}
