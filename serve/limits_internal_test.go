package serve

import (
	"log/slog"
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
