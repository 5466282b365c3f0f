//go:build nightly

package rabbitmq

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/telemetry"
)

// TestMain stops the server that the tests share.
func TestMain(m *testing.M) {
	code := m.Run()
	if shared.server != nil {
		if err := shared.server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

var shared struct {
	once   sync.Once
	server *devenv.RabbitMQServer
	err    error
}

// server returns the RabbitMQ that all tests share.
func server(t *testing.T) *devenv.RabbitMQServer {
	t.Helper()
	shared.once.Do(func() {
		shared.server, shared.err = devenv.RabbitMQ(context.Background(), &devenv.Options{Volatile: true})
	})
	require.NoError(t, shared.err)
	return shared.server
}

// hang is what takes longer than anything that works.
const hang = 5 * time.Minute

// config is that of the tests. What only stops a hang is long: a machine may stand still.
func config(url string) *Config {
	return &Config{
		URL: url, Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)}, LogInterval: -1, MaxMessageBytes: 5 << 20,
		ConnectTimeout: hang, PublishTimeout: hang, CloseTimeout: hang,
	}
}

// connect connects and closes with the test.
func connect(t *testing.T, cfg *Config) *Broker {
	t.Helper()
	b, err := Connect(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// patient bounds what waits for a server.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	return ctx
}

// operator calls do with a channel of the client, as an operator who changes something at the broker.
func operator(t *testing.T, do func(ch *amqp.Channel) error) {
	t.Helper()
	conn, err := amqp.Dial(server(t).URL)
	require.NoError(t, err)
	ch, err := conn.Channel()
	require.NoError(t, err)
	require.NoError(t, do(ch))
	require.NoError(t, conn.Close())
}

// envelope is the n-th message of a key.
func envelope(topic, key string, n int) event.Envelope {
	return event.Envelope{
		ID: fmt.Sprintf("%s-%s-%d", topic, key, n), Type: "t", Source: "s", TenantID: "t1", Topic: topic, RoutingKey: key, Sequence: int64(n),
		OccurredAt: time.Now(), ContentType: "text/plain", Payload: fmt.Appendf(nil, "%d", n),
	}
}
