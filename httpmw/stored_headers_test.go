package httpmw_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Headers about the body, about the resource and for caches are replayed. Headers that belong to one moment or one
// caller are not, whatever is configured.
func TestHeadersOfReplays(t *testing.T) {
	t.Parallel()
	kept := strings.Fields(`Accept Accept-Encoding Accept-Patch Accept-Post Allow Cache-Control Content-Digest Content-Disposition
		Content-Encoding Content-Language Content-Location Content-Range Content-Security-Policy Content-Type Etag Expires Last-Modified Link
		Location Preference-Applied Repr-Digest Vary X-Content-Type-Options X-Payment-State`)
	dropped := strings.Fields(`Access-Control-Allow-Origin Age Retry-After Server Server-Timing Set-Cookie Traceparent Www-Authenticate
		X-Correlation-Id X-Frame-Options X-Ratelimit-Remaining X-Request-Id`)
	s := newService(t)
	s.cfg.Headers = []string{"x-payment-*", "X-R*", "x-c*", "Set-*"}
	s.start(func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range append(kept, dropped...) {
			w.Header().Set(name, "of "+name)
		}
		w.WriteHeader(http.StatusMethodNotAllowed)
	})
	first, again := s.post("k", "{}"), s.post("k", "{}")
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	for _, name := range kept {
		require.Equal(t, []string{"of " + name}, first.header.Values(name), name)
		require.Equal(t, []string{"of " + name}, again.header.Values(name), name)
	}
	for _, name := range dropped {
		require.Equal(t, []string{"of " + name}, first.header.Values(name), name)
		require.Empty(t, again.header.Values(name), name)
	}
}

// Vary names all that the answer depends on: that of the handler then, and that of middlewares further out now.
func TestVaryOfReplays(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", r.Header.Get("X-Vary"))
		s.middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("Vary", "Accept")
			w.WriteHeader(http.StatusOK)
		})).ServeHTTP(w, r)
	}))
	require.Equal(t, []string{"Origin", "Accept"}, s.post("k", "{}", header("X-Vary", "Origin")).header.Values("Vary"))
	for range 3 { // the last ones are answered from memory
		require.Equal(t, []string{"Origin", "Accept"}, s.post("k", "{}", header("X-Vary", "Origin")).header.Values("Vary"))
		require.Equal(t, []string{"Origin", "Accept", "Accept-Encoding"}, s.post("k", "{}", header("X-Vary", "Accept-Encoding")).header.Values("Vary"))
	}
}

// A 401 says how to authenticate (RFC 9110, section 11.6.1).
func TestChallenge(t *testing.T) {
	t.Parallel()
	s := newService(t)
	nobody := header("X-Principal")
	s.start(s.pay)
	require.Equal(t, `Bearer realm="api"`, s.post("k", "{}", nobody).header.Get("WWW-Authenticate"))
	require.Empty(t, s.post("a,b", "{}", nobody).header.Get("WWW-Authenticate"), "of a 401 only")
	s.cfg.Challenge = "Basic"
	s.start(s.pay)
	require.Equal(t, []string{"Basic"}, s.post("k", "{}", nobody).header.Values("WWW-Authenticate"))
	s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("WWW-Authenticate", "Digest")
		s.middleware(http.HandlerFunc(s.pay)).ServeHTTP(w, r)
	}))
	require.Equal(t, []string{"Digest"}, s.post("k", "{}", nobody).header.Values("WWW-Authenticate"))
}
