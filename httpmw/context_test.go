package httpmw_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
)

func TestTenant(t *testing.T) {
	find := func(r *http.Request) (string, error) {
		if r.Header.Get("X-Tenant") == "unknown" {
			return "", errors.New("planted")
		}
		return r.Header.Get("X-Tenant"), nil
	}
	for name, tc := range map[string]struct {
		tenant string
		status int
	}{
		"named":        {"acme", 200},
		"none":         {"", 400},
		"error":        {"unknown", 400},
		"not UTF-8":    {"\xff", 400},
		"with control": {"a\x01", 400},
		"too long":     {strings.Repeat("t", 256), 400},
	} {
		t.Run(name, func(t *testing.T) {
			var seen *string
			h := httpmw.Tenant(find)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				tenant := event.TenantFrom(r.Context())
				seen = &tenant
			}))
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.Header["X-Tenant"] = []string{tc.tenant}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, tc.status, w.Code)
			if tc.status == http.StatusOK {
				require.Equal(t, tc.tenant, *seen)
				return
			}
			require.Nil(t, seen)
			kind, _ := reply{w.Code, w.Header(), w.Body.String()}.problem(t)
			require.Equal(t, "tenant-invalid", kind)
			require.NotContains(t, w.Body.String(), "planted")
		})
	}
}

func TestMetadata(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, tc := range map[string]struct {
		sent map[string]string
		want event.Metadata // "new": a fresh id
	}{
		"nothing":     {nil, event.Metadata{"correlation_id": "new", "causation_id": "new"}},
		"correlation": {map[string]string{"X-Correlation-ID": "c"}, event.Metadata{"correlation_id": "c", "causation_id": "c"}},
		"request":     {map[string]string{"X-Request-ID": "r"}, event.Metadata{"correlation_id": "r", "causation_id": "r"}},
		"both":        {map[string]string{"X-Correlation-ID": "c", "X-Request-ID": "r"}, event.Metadata{"correlation_id": "c", "causation_id": "r"}},
		"bad ids": {map[string]string{"X-Correlation-ID": "\xff", "X-Request-ID": strings.Repeat("r", 256)},
			event.Metadata{"correlation_id": "new", "causation_id": "new"}},
		"trace": {map[string]string{"X-Request-ID": "r", "Traceparent": parent, "Tracestate": "a=b"},
			event.Metadata{"correlation_id": "r", "causation_id": "r", "traceparent": parent, "tracestate": "a=b"}},
		"bad trace": {map[string]string{"X-Request-ID": "r", "Traceparent": "00-zz", "Tracestate": "a=b"},
			event.Metadata{"correlation_id": "r", "causation_id": "r"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got event.Metadata
			h := httpmw.Metadata()(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = event.MetadataFrom(r.Context()) }))
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			for name, value := range tc.sent {
				r.Header.Set(name, value)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, got["correlation_id"], w.Header().Get("X-Correlation-ID"))
			if tc.want["correlation_id"] == "new" {
				id, err := uuid.Parse(got["correlation_id"])
				require.NoError(t, err)
				require.EqualValues(t, 7, id.Version())
				tc.want["correlation_id"], tc.want["causation_id"] = id.String(), id.String()
			}
			require.Equal(t, tc.want, got)
		})
	}
}

// Package serve mounts the middleware around all requests. A service that mounts it once more does not get another correlation id.
func TestMetadataMountedTwice(t *testing.T) {
	var outer, inner event.Metadata
	within := httpmw.Metadata()(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { inner = event.MetadataFrom(r.Context()) }))
	h := httpmw.Metadata()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outer = event.MetadataFrom(r.Context())
		within.ServeHTTP(w, r)
	}))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	require.NotEmpty(t, outer)
	require.Equal(t, outer, inner)
	require.Equal(t, []string{outer["correlation_id"]}, w.Header().Values("X-Correlation-ID"))
}
