package httpmw_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
)

// A service that forgets its Tenant, or mounts it too far in, must not put the keys of all tenants into one.
func TestTenantIsRequired(t *testing.T) {
	t.Parallel()
	tenant := httpmw.Tenant(func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil })
	s := newService(t)
	s.cfg.RequireTenant = true
	once := httpmw.Idempotency(s.units, s.keys, func(r *http.Request) (idempotency.Scope, error) {
		return idempotency.Scope{Tenant: r.Header.Get("X-Scope-Tenant"), Principal: "u1"}, nil
	}, &s.cfg)
	for name, h := range map[string]http.Handler{
		"no Tenant":        once(http.HandlerFunc(s.pay)),
		"Tenant is within": once(tenant(http.HandlerFunc(s.pay))),
	} {
		t.Run(name, func(t *testing.T) {
			s.serve(h)
			got := s.post("k", "{}", header("X-Tenant", "acme"))
			require.Equal(t, http.StatusBadRequest, got.status, got.body)
			kind, _ := got.problem(t)
			require.Equal(t, "idempotency-scope-invalid", kind)
			require.Zero(t, s.payments())
			require.Contains(t, s.log.String(), "RequireTenant is set, but the request has no tenant")
		})
	}
	for name, c := range map[string]struct {
		handler http.Handler
		header  string
	}{
		"of Tenant":    {tenant(once(http.HandlerFunc(s.pay))), "X-Tenant"},
		"of the scope": {once(http.HandlerFunc(s.pay)), "X-Scope-Tenant"},
	} {
		t.Run(name, func(t *testing.T) {
			s.serve(c.handler)
			require.Equal(t, http.StatusCreated, s.post("k"+c.header, "{}", header(c.header, "acme")).status)
		})
	}
	require.Equal(t, 2, s.count("SELECT count(*) FROM idempotency_keys WHERE tenant_id = 'acme'"))
}

// Tenant inside of Idempotency comes too late for the key: two tenants would get one answer.
func TestTenantWithinIdempotency(t *testing.T) {
	t.Parallel()
	for mode, lease := range map[string]*httpmw.LeaseConfig{"atomic": nil, "lease": {}} {
		t.Run(mode, func(t *testing.T) {
			s := newService(t)
			s.cfg.Lease = lease
			tenant := httpmw.Tenant(func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil })
			inner := tenant(http.HandlerFunc(s.pay))

			s.serve(httpmw.Idempotency(s.units, s.keys, func(*http.Request) (idempotency.Scope, error) {
				return idempotency.Scope{Principal: "u1"}, nil
			}, &s.cfg)(inner))
			for range 2 {
				got := s.post("k", "{}", header("X-Tenant", "acme"))
				require.Equal(t, http.StatusInternalServerError, got.status, got.body)
				kind, _ := got.problem(t)
				require.Equal(t, "middleware-misplaced", kind)
			}
			require.Zero(t, s.payments())
			require.Equal(t, http.StatusCreated, s.post("k2", "{}", header("X-Tenant", "default")).status, "its key is right")
			require.Equal(t, http.StatusCreated, s.post("", "{}", header("X-Tenant", "acme")).status, "without a key nothing is wrong")

			// A scope function that names the tenant has the last word.
			s.serve(httpmw.Idempotency(s.units, s.keys, func(*http.Request) (idempotency.Scope, error) {
				return idempotency.Scope{Tenant: "all", Principal: "u1"}, nil
			}, &s.cfg)(inner))
			require.Equal(t, http.StatusCreated, s.post("k", "{}", header("X-Tenant", "acme")).status)
		})
	}
}
