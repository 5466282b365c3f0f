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

// config returns a configuration without a log. The server misses a silent process soon. All that is waited for may take long on a busy machine.
func config(url string) *Config {
	return &Config{
		URL: url, TakeoverTimeout: time.Second, Required: true,
		ConnectionTimeout: time.Minute, OperationTimeout: time.Minute, ConnectTimeout: 4 * time.Minute, PublishTimeout: 50 * time.Second,
		CloseTimeout: time.Minute,
		Telemetry:    telemetry.Config{Logger: slog.New(slog.DiscardHandler)},
	}
}

func connect(t *testing.T, cfg *Config) *Broker {
	t.Helper()
	b, err := Connect(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}
