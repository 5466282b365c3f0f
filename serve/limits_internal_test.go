package serve

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
)

// Everything that a client can make the server wait for ends, and the last answer of all fits in: that of a request that came slowly,
// worked for long, and whose COMMIT was given up and then looked for in vain.
func TestServerIsBounded(t *testing.T) {
	for _, commit := range []time.Duration{0, time.Minute} {
		p := &process{cfg: (*Config)(nil).WithDefaults(), quiet: slog.Default()}
		p.app.UoW.CommitTimeout = commit
		s, err := p.listenAt(t.Context(), "ADDR", "127.0.0.1:0", nil)
		require.NoError(t, err)
		require.NoError(t, s.at.Close())
		require.Positive(t, s.ReadHeaderTimeout)
		require.Positive(t, s.IdleTimeout)
		require.GreaterOrEqual(t, p.cfg.RequestTimeout, httpmw.DefaultTimeout)
		require.Greater(t, s.WriteTimeout, s.ReadTimeout+p.cfg.RequestTimeout+2*p.app.UoW.WithDefaults().CommitTimeout)
	}
}

// Until the service is set up, a request is refused in the format of its other errors, and the client is asked to come again.
func TestServiceThatStartsRefusesWithAProblem(t *testing.T) {
	rec := httptest.NewRecorder()
	new(web).answer(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/orders", nil))
	require.Equal(t, http.StatusServiceUnavailable, rec.Code)
	require.Equal(t, "1", rec.Header().Get("Retry-After"))
	require.Equal(t, "application/problem+json", rec.Header().Get("Content-Type"))
	require.Contains(t, rec.Body.String(), "The service starts")
}
