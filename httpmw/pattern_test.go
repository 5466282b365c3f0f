package httpmw_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
)

// A middleware around a whole router labels its metrics by the route, although the middlewares between them give the router a request of its own.
func TestRouteIsSeenFurtherOut(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(http.ResponseWriter, *http.Request) {})
	tenant := httpmw.Tenant(func(*http.Request) (string, error) { return "acme", nil })
	for name, h := range map[string]http.Handler{
		"Tenant": tenant(mux), "Metadata": httpmw.Metadata()(mux), "both": tenant(httpmw.Metadata()(mux)),
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/orders/7", http.NoBody)
		h.ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, "GET /orders/{id}", r.Pattern, name)
	}
}
