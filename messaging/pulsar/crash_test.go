package pulsar

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/messaging/messagingtest"
	"github.com/oncebox/oncebox/telemetry"
)

// The broker is killed, and stays away for longer than a call of Publish. Nothing is lost, nothing changes its order, and nobody has to be restarted. A
// process that starts meanwhile waits for the broker.
func TestBrokerIsKilled(t *testing.T) {
	t.Parallel()
	server, err := devenv.Pulsar(patient(t), &devenv.Options{Own: true, Volatile: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	cfg := &Config{
		URL: server.URL, AdminURL: server.AdminURL, ConnectTimeout: hang, PublishTimeout: hang, CloseTimeout: hang,
		Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)},
	}
	messagingtest.RunKilled(t, messagingtest.Harness{
		Open: func(t *testing.T) messagingtest.Broker {
			t.Helper()
			return connect(t, cfg)
		},
		Kill: func(t *testing.T, _ messagingtest.Broker) func() {
			t.Helper()
			require.NoError(t, server.Kill())
			return func() {
				connected := make(chan error, 1)
				go func() {
					patiently := *cfg
					patiently.ConnectTimeout = 10 * time.Minute
					late, err := Connect(context.Background(), &patiently)
					if err == nil {
						err = late.Close()
					}
					connected <- err
				}()
				require.NoError(t, server.Restart(patient(t)))
				require.NoError(t, <-connected)
			}
		},
		Patience: 30 * time.Minute,
	}, 1)
}
