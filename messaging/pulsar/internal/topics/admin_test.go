package topics

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// owner is a broker that answers, and writes down the credentials that it saw.
func owner(t *testing.T) (url string, seen *[]string) {
	t.Helper()
	seen = &[]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*seen = append(*seen, r.Method+" "+r.Header.Get("Authorization"))
		_, _ = w.Write([]byte(`{"partitions":3}`))
	}))
	t.Cleanup(server.Close)
	return strings.Replace(server.URL, "127.0.0.1", "localhost", 1), seen // another host, as net/http sees it
}

// A broker that does not own the topic answers with the address of another one.
func TestAdminIsAuthorizedAtTheOwner(t *testing.T) {
	to, seen := owner(t)
	other := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to+r.URL.RequestURI(), http.StatusTemporaryRedirect)
	})
	plain, secure := httptest.NewServer(other), httptest.NewTLSServer(other)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	withPassword := strings.Replace(plain.URL, "//", "//me:secret@", 1)
	for _, c := range []Config{
		{AdminURL: plain.URL, Token: "abc"}, {AdminURL: withPassword}, {AdminURL: secure.URL, Token: "abc", TLSAllowInsecure: true},
	} {
		a, err := NewAdmin(&c)
		require.NoError(t, err)
		_, err = a.MakeTopic(t.Context(), "order", 3)
		require.NoError(t, err)
		a.Close()
	}
	require.Equal(t, []string{"PUT Bearer abc", "PUT Basic bWU6c2VjcmV0", "PUT "}, *seen, "and nothing from https to http")
}

func TestAdminGivesUpOnACircle(t *testing.T) {
	var hops int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hops++
		http.Redirect(w, r, r.URL.RequestURI(), http.StatusTemporaryRedirect)
	}))
	t.Cleanup(server.Close)
	a, err := NewAdmin(&Config{AdminURL: server.URL})
	require.NoError(t, err)
	_, err = a.Partitions(t.Context(), "order")
	require.ErrorContains(t, err, "redirects")
	require.Equal(t, maxRedirects, hops)
}

func TestAdminAuthorizes(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		_, _ = w.Write([]byte(`{"partitions":3}`))
	}))
	t.Cleanup(server.Close)
	for _, c := range []Config{{Token: "abc"}, {TokenFile: file(t, "from-file\n")}, {}} {
		c.AdminURL = server.URL
		a, err := NewAdmin(&c)
		require.NoError(t, err)
		n, err := a.Partitions(t.Context(), "order")
		require.NoError(t, err)
		require.Equal(t, 3, n)
		a.Close()
	}
	require.Equal(t, []string{"Bearer abc", "Bearer from-file", ""}, got)
	_, err := NewAdmin(&Config{TLSTrustCerts: file(t, "not a certificate")})
	require.ErrorContains(t, err, "holds no certificate")
	_, err = NewAdmin(&Config{TLSCert: "no such", TLSKey: "file"})
	require.ErrorContains(t, err, "Config.TLSCert")
	a, err := NewAdmin(&Config{AdminURL: server.URL, TokenFile: "no such file"})
	require.NoError(t, err)
	_, err = a.Partitions(t.Context(), "order")
	require.ErrorContains(t, err, "Config.TokenFile")
}
