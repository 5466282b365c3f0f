package httpmw_test

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
)

// written returns the answer of WriteProblem to a request with this Accept header.
func written(p httpmw.Problem, accept string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
	r.Header.Set("Accept", accept)
	w.Header().Set("X-Request-ID", "7")
	httpmw.WriteProblem(w, r, p)
	return w
}

func TestWriteProblem(t *testing.T) {
	w := written(httpmw.Problem{
		Type: "/problems/sold-out", Title: "The show is sold out", Status: http.StatusUnprocessableEntity, Detail: "No seat is left.",
		Extensions: map[string]any{"left": 0, "show": "7"},
	}, "*/*")
	require.Equal(t, http.StatusUnprocessableEntity, w.Code)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.Equal(t, "7", w.Header().Get("X-Request-ID"))
	require.Empty(t, w.Header().Get("Retry-After"))
	require.Equal(t, //nolint:testifylint // the order of the members, too
		`{"type":"/problems/sold-out","title":"The show is sold out","status":422,"detail":"No seat is left.","retryable":false,`+
			`"left":0,"show":"7"}`, w.Body.String())

	w = written(httpmw.Problem{}, "application/json")
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.Equal(t, //nolint:testifylint // the order of the members, too
		`{"type":"about:blank","title":"Internal Server Error","status":500,"retryable":false}`, w.Body.String())

	require.Equal(t, "1", written(httpmw.Problem{Status: http.StatusServiceUnavailable, Retryable: true}, "").Header().Get("Retry-After"))
}

func TestProblemRefusesExtensionsThatItCannotHold(t *testing.T) {
	_, err := json.Marshal(httpmw.Problem{Extensions: map[string]any{"status": 200}})
	require.ErrorContains(t, err, `the extension "status" has the name of another member`)
	require.Panics(t, func() { written(httpmw.Problem{Extensions: map[string]any{"price": math.NaN()}}, "") })
}
