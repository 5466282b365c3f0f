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
	cfg.AdminURL, cfg.AdminTimeout, cfg.Telemetry.Logger = strings.Replace(server.URL, "//", "//me:secret@", 1), time.Second, log.Logger()
	b := connect(t, cfg)
	require.Equal(t, 1, log.Count("admin API cannot be used"))
	require.Zero(t, log.Count("secret"))
	_, err := b.keeper.Admin.Partitions(t.Context(), "order")
	require.ErrorContains(t, err, "invalid character", "it was let in")
	require.NotContains(t, err.Error(), "secret")
	server.Close()
	_, err = b.keeper.Admin.Partitions(t.Context(), "order")
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
