package pulsar

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
)

func TestMain(m *testing.M) {
	waitAtOnce()
	// When the broker says that a topic is gone, the client closes its producers and forgets the goroutine of each that
	// reconnects; a later Close does nothing. The one for sending would still show a producer that nobody closes.
	forgotten := goleak.IgnoreTopFunction("github.com/apache/pulsar-client-go/pulsar.(*partitionProducer).runEventsLoop.func1")
	// For each message in chunks it has a goroutine that waits for a minute.
	chunked := goleak.IgnoreAnyFunction("github.com/apache/pulsar-client-go/pulsar.(*chunkedMsgCtxMap).discardChunkIfExpire")
	pgtest.MainIgnoring(m, []goleak.Option{forgotten, chunked}, pulsartest.Stop)
}

// waitAtOnce lets more tests run at once than there are cores: they mostly wait for the broker. The command line is
// read later, so its -parallel wins.
func waitAtOnce() {
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
}

// config is that of a namespace. What only stops a hang is long: a machine may stand still.
func config(n *pulsartest.Namespace) *Config {
	tenant, namespace, _ := strings.Cut(n.Name, "/")
	return &Config{
		URL: n.URL, AdminURL: n.AdminURL, Tenant: tenant, Namespace: namespace, Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)},
		AdminTimeout: hang, ConnectTimeout: hang, PublishTimeout: hang, CloseTimeout: hang,
	}
}

// hang is what takes longer than anything that works.
const hang = 5 * time.Minute

// connect connects to a namespace and closes with the test. What is published waits for the admin API for as long as that
// takes: what a test expects of the first look must not depend on the machine.
func connect(t *testing.T, cfg *Config) *Broker {
	t.Helper()
	cfg.LogInterval = -1 // tests wait for lines
	b, err := Connect(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	b.keeper.Presence.Patience, b.keeper.Admin.LookFor = hang, hang
	return b
}

// patient bounds what waits for a server.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	return ctx
}

// envelope is the n-th message of a key.
func envelope(topic, key string, n int) event.Envelope {
	return event.Envelope{
		ID: fmt.Sprintf("%s-%s-%d", topic, key, n), Type: "t", Source: "s", TenantID: "t1", Topic: topic, RoutingKey: key, Sequence: int64(n),
		OccurredAt: time.Now(), ContentType: "text/plain", Payload: fmt.Appendf(nil, "%d", n),
	}
}

// series is n messages of each key, in turns.
func series(topic string, keys, n int) []event.Envelope {
	var msgs []event.Envelope
	for i := range n {
		for k := range keys {
			msgs = append(msgs, envelope(topic, fmt.Sprintf("key%d", k), i+1))
		}
	}
	return msgs
}

// receiveAll receives n different messages and settles them.
func receiveAll(t *testing.T, r messaging.Receiver, n int) []*messaging.Message {
	t.Helper()
	ctx, done := await.Context(t.Context(), t, "%d messages", n)
	defer done()
	seen := map[string]bool{}
	var msgs []*messaging.Message
	for len(msgs) < n {
		m, err := r.Receive(ctx)
		require.NoError(t, err, "after %d of %d", len(msgs), n)
		require.NoError(t, r.Ack(ctx, m))
		if !seen[m.ID] {
			seen[m.ID] = true
			msgs = append(msgs, m)
		}
	}
	return msgs
}
