package pulsar

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pulsartest"
)

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
		a, err := newAdmin(&c)
		require.NoError(t, err)
		_, err = a.makeTopic(t.Context(), "order", 3)
		require.NoError(t, err)
		a.http.CloseIdleConnections()
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
	a, err := newAdmin(&Config{AdminURL: server.URL})
	require.NoError(t, err)
	_, err = a.partitions(t.Context(), "order")
	require.ErrorContains(t, err, "redirects")
	require.Equal(t, maxRedirects, hops)
}

func TestPasswordOfTheAdminURLIsNotTold(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = w.Write([]byte(`no JSON`))
	}))
	t.Cleanup(server.Close)
	var log logbook.Book
	n := pulsartest.Open(t)
	n.Retain(t)
	cfg := declared(n, "order", "billing")
	cfg.AdminURL, cfg.AdminTimeout, cfg.Logger = strings.Replace(server.URL, "//", "//me:secret@", 1), time.Second, log.Logger()
	b := connect(t, cfg)
	require.Equal(t, 1, log.Count("admin API cannot be used"))
	require.Zero(t, log.Count("secret"))
	_, err := b.admin.partitions(t.Context(), "order")
	require.ErrorContains(t, err, "invalid character", "it was let in")
	require.NotContains(t, err.Error(), "secret")
	server.Close()
	_, err = b.admin.partitions(t.Context(), "order")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")

	for _, url := range []string{"ftp://me:secret@host", "http://me:se/cret@host", "http://me:%secret@host", "http://me:s:e@cret@ho st"} {
		for _, c := range []Config{{URL: url}, {URL: "pulsar://host:6650", AdminURL: url}} {
			err := c.Validate()
			require.ErrorContains(t, err, "xxxxx@", url)
			require.NotContains(t, err.Error(), "cret", url)
		}
	}
}
