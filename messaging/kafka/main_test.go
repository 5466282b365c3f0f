package kafka

import (
	"crypto/rand"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/leaktest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
)

func TestMain(m *testing.M) { leaktest.Exit(m.Run()) }

// cluster starts a Kafka in this process, with three brokers.
func cluster(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{
		kfake.NumBrokers(3), kfake.GroupMinSessionTimeout(100 * time.Millisecond),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}),
	}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// configOf returns a configuration for a cluster, with topics of its own. What is waited for may take long on a busy machine.
func configOf(url ...string) *Config {
	return &Config{
		URL: strings.Join(url, ","), Prefix: "t" + strings.ToLower(rand.Text()[:8]) + ".", Name: "test", Replication: 1,
		CommitInterval: 50 * time.Millisecond, SessionTimeout: 12 * time.Second, HandoverTimeout: 2 * time.Second,
		ConnectTimeout: 5 * time.Minute, OperationTimeout: 2 * time.Minute, PublishTimeout: 5 * time.Minute, CloseTimeout: 2 * time.Minute,
		Telemetry: telemetry.Config{Logger: logger()},
	}
}

// logger discards, unless a person wants to see the log.
func logger() *slog.Logger {
	if os.Getenv("KAFKA_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func connect(t *testing.T, cfg *Config) *Broker {
	t.Helper()
	b, err := Connect(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func subscribe(t *testing.T, b *Broker, s messaging.Subscription) *receiver {
	t.Helper()
	r, err := b.Subscribe(t.Context(), s)
	require.NoError(t, err)
	return r.(*receiver)
}

// series returns the messages 1 to n of a key.
func series(topic, key string, n int) (msgs []event.Envelope) {
	for i := range n {
		msgs = append(msgs, event.Envelope{
			ID: key + "-" + rand.Text(), Type: "thing.happened", Source: "test", Topic: topic, RoutingKey: key, AggregateType: "thing", AggregateID: key,
			Sequence: int64(i + 1), SchemaVersion: 1, Metadata: event.Metadata{}, Payload: []byte("{}"), ContentType: event.ContentTypeJSON,
		})
	}
	return msgs
}
