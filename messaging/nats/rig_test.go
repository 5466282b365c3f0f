package nats

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging/nats/natsserver"
	"github.com/oncebox/oncebox/telemetry"
)

// serve starts a server for one test.
func serve(t *testing.T) *natsserver.Server {
	t.Helper()
	s, err := natsserver.Start(&natsserver.Config{Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	return s
}

// config returns a configuration with short times, and without a log.
func config(url string) *Config {
	return &Config{
		URL: url, TakeoverTimeout: time.Second, Required: true,
		Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)},
	}
}

func connect(t *testing.T, cfg *Config) *Broker {
	t.Helper()
	b, err := Connect(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}
