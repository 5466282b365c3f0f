package pulsartest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/devenv"
)

// refusing stands before an admin API. Where it refuses, it answers as Pulsar 4.0.8 does with forceDeleteNamespaceAllowed=false.
func refusing(t *testing.T, to string, refuses func(*http.Request) bool) *devenv.PulsarServer {
	t.Helper()
	u, err := url.Parse(to)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(u) },
		Transport: &http.Transport{DisableKeepAlives: true},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuses(r) {
			w.WriteHeader(http.StatusMethodNotAllowed)
			_, _ = io.WriteString(w, `{"reason":"Broker doesn't allow forced deletion of namespaces"}`)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return &devenv.PulsarServer{AdminURL: server.URL}
}

// A server that removes no namespace by force is left as it was found.
func TestNamespaceIsRemovedWithoutForce(t *testing.T) {
	n := Open(t)
	require.NoError(t, n.Admin(t.Context(), http.MethodPut, "/persistent/"+n.Name+"/orders/partitions", "4"))
	require.NoError(t, n.Admin(t.Context(), http.MethodPut, "/persistent/"+n.Name+"/orders/subscription/s", `"earliest"`))
	require.NoError(t, n.Admin(t.Context(), http.MethodPut, "/persistent/"+n.Name+"/odd%20one", ""))
	there := n.server
	n.server = refusing(t, n.AdminURL, func(r *http.Request) bool {
		return strings.HasPrefix(r.URL.Path, "/admin/v2/namespaces/") && r.URL.RawQuery != ""
	})
	n.remove()
	n.server = there
	require.ErrorContains(t, n.Admin(t.Context(), http.MethodGet, "/namespaces/"+n.Name, ""), "404")
}

func TestNamespaceThatStaysIsSaidOnce(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer file.Close()
	stderr := os.Stderr
	os.Stderr = file
	defer func() { os.Stderr = stderr }()
	stays = sync.Once{}
	defer func() { stays = sync.Once{} }()
	server := refusing(t, "http://127.0.0.1:1", func(*http.Request) bool { return true })
	for _, name := range []string{"public/one", "public/two"} {
		(&Namespace{Name: name, server: server}).remove()
	}
	text, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), "\n"), string(text))
	require.Contains(t, string(text), "the Pulsar namespace public/one stays")
	require.Contains(t, string(text), "forceDeleteNamespaceAllowed=true")
	require.Contains(t, string(text), "Broker doesn't allow forced deletion of namespaces")
}
