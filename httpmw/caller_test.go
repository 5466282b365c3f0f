package httpmw_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
)

func TestAuthenticate(t *testing.T) {
	find := func(r *http.Request) (idempotency.Scope, error) {
		switch r.Header.Get("Authorization") {
		case "ann":
			return idempotency.Scope{Tenant: "acme", Principal: "ann"}, nil
		case "bob":
			return idempotency.Scope{Principal: "bob"}, nil
		case "eve":
			return idempotency.Scope{Tenant: "\xff", Principal: "eve"}, nil
		case "down":
			return idempotency.Scope{}, httpmw.Problem{Status: http.StatusServiceUnavailable, Title: "No users", Retryable: true}
		}
		return idempotency.Scope{}, errors.New("unknown token")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /notes/{id}", func(w http.ResponseWriter, r *http.Request) {
		scope, err := httpmw.Caller(r)
		_, _ = fmt.Fprint(w, event.TenantFrom(r.Context()), " ", scope.Tenant, " ", scope.Principal, " ", err)
	})
	var route string
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpmw.Authenticate(find)(mux).ServeHTTP(w, r)
		route = r.Pattern
	})
	for who, c := range map[string]struct {
		status                 int
		body, challenge, route string
	}{
		"ann":  {http.StatusOK, "acme acme ann <nil>", "", "GET /notes/{id}"},
		"bob":  {http.StatusOK, "  bob <nil>", "", "GET /notes/{id}"},
		"eve":  {http.StatusBadRequest, "", "", ""},
		"down": {http.StatusServiceUnavailable, "", "", ""},
		"":     {http.StatusUnauthorized, "", `Bearer realm="api"`, ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/notes/1", nil)
		r.Header.Set("Authorization", who)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, c.status, w.Code, who)
		require.Equal(t, c.challenge, w.Header().Get("WWW-Authenticate"), who)
		require.Equal(t, c.route, route, who)
		if c.status == http.StatusOK {
			require.Equal(t, c.body, w.Body.String())
		} else {
			require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"), who)
		}
	}
	_, err := httpmw.Caller(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	require.ErrorContains(t, err, "mount httpmw.Authenticate")
	require.Panics(t, func() { httpmw.Authenticate(nil) })
}
