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

func TestBearerTokens(t *testing.T) {
	var tokens httpmw.BearerTokens
	require.NoError(t, tokens.UnmarshalText([]byte("token-1:acme, token-2:globex")))
	require.Equal(t, httpmw.BearerTokens{"token-1": "acme", "token-2": "globex"}, tokens)
	tokens[""], tokens["nobody"] = "nobody", ""
	h := httpmw.Authenticate(tokens.Scope)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scope, err := httpmw.Caller(r)
		_, _ = fmt.Fprintf(w, "%s %t %v", scope.Tenant, scope == idempotency.Anonymous(event.TenantFrom(r.Context())), err)
	}))
	for header, tenant := range map[string]string{
		"Bearer token-1": "acme", "bearer token-2": "globex",
		"": "", "Bearer": "", "Bearer ": "", "Bearer token": "", "Bearer token-11": "", "Basic token-1": "", "token-1": "", "Bearer nobody": "",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("Authorization", header)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if tenant != "" {
			require.Equal(t, tenant+" true <nil>", w.Body.String(), header)
			continue
		}
		require.Equal(t, http.StatusUnauthorized, w.Code, header)
		require.Equal(t, httpmw.DefaultChallenge, w.Header().Get("WWW-Authenticate"))
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	}
	for wrong, says := range map[string]string{
		"secret":                              "entry 1 is not token:tenant",
		"secret:acme,":                        "entry 2 is not token:tenant",
		":secret":                             "entry 1 is not token:tenant",
		"token-1:acme, secret:":               "entry 2 is not token:tenant",
		"token-1:acme, acme:secret\ntail":     "entry 2 has a tenant that is not an identifier",
		"secret:acme,token-2:b,secret:globex": "entries 1 and 3 have the same token",
	} {
		err := tokens.UnmarshalText([]byte(wrong))
		require.ErrorContains(t, err, "httpmw: BearerTokens: "+says)
		require.NotContains(t, err.Error(), "secret")
	}
}
