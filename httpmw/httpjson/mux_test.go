package httpjson_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw/httpjson"
)

// A request that no pattern matches gets a problem, and other requests are answered as the ServeMux answers them.
func TestMuxRefusesWithProblems(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /shows/{id}", func(w http.ResponseWriter, r *http.Request) { http.Error(w, r.PathValue("id"), http.StatusNotFound) })
	mux.HandleFunc("GET /list/", func(http.ResponseWriter, *http.Request) {})
	h := httpjson.Mux(mux)
	for _, c := range []struct {
		method, path string
		status       int
		media, body  string
		allow        string
	}{
		{http.MethodPost, "/shows/7", http.StatusNotFound, "text/plain; charset=utf-8", "7\n", ""},
		{http.MethodPost, "/show/7", http.StatusNotFound, "application/problem+json",
			`{"type":"about:blank","title":"Not Found","status":404,"retryable":false}`, ""},
		{http.MethodPut, "/shows/7", http.StatusMethodNotAllowed, "application/problem+json",
			`{"type":"about:blank","title":"Method Not Allowed","status":405,"retryable":false}`, "POST"},
		{http.MethodGet, "/list", http.StatusTemporaryRedirect, "text/html; charset=utf-8", "", ""},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil))
		require.Equal(t, c.status, w.Code, c.path)
		require.Equal(t, c.media, w.Header().Get("Content-Type"), c.path)
		require.Equal(t, c.allow, w.Header().Get("Allow"), c.path)
		switch {
		case c.media == "application/problem+json":
			require.JSONEq(t, c.body, w.Body.String())
		case c.body != "":
			require.Equal(t, c.body, w.Body.String())
		}
	}
}
