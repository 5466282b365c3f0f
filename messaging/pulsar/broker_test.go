package pulsar

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
)

// nobody is an address at which nobody listens. A free port could be given to somebody else at any moment, this one cannot.
const nobody = "127.0.0.1:1"

func TestConnectWithoutBroker(t *testing.T) {
	const url = "pulsar://" + nobody
	cfg := &Config{URL: url, Required: true, ConnectTimeout: 300 * time.Millisecond, OperationTimeout: 100 * time.Millisecond}
	_, err := Connect(t.Context(), cfg)
	require.ErrorIs(t, err, messaging.ErrBrokerDown)
	for _, part := range []string{url, "ONCEBOX_PULSAR_URL", "Config.ConnectTimeout"} {
		require.ErrorContains(t, err, part)
	}
}

func TestConnectEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Connect(ctx, &Config{URL: "pulsar://" + nobody, OperationTimeout: 100 * time.Millisecond})
	require.ErrorIs(t, err, context.Canceled)
}

func TestConnectWithBadConfig(t *testing.T) {
	_, err := Connect(t.Context(), nil)
	require.ErrorContains(t, err, "ONCEBOX_PULSAR_URL")
	_, err = Connect(t.Context(), &Config{URL: "pulsar://" + nobody, TLSTrustCerts: "no such file"})
	require.ErrorContains(t, err, "Config.TLSTrustCerts")
}

// A call that is under way when the broker is closed gets the time it needs.
func TestCloseWaitsForPublish(t *testing.T) {
	t.Parallel()
	b := connect(t, config(pulsartest.Open(t)))
	msgs := series("order", 50, 20)
	started, published := make(chan struct{}), make(chan error, 1)
	go func() {
		close(started)
		published <- b.Publish(t.Context(), msgs)
	}()
	<-started
	require.NoError(t, b.Close())
	if err := <-published; err != nil {
		require.ErrorContains(t, err, "after Close", "it was not let in, or it was finished")
	}
	require.ErrorIs(t, b.Publish(t.Context(), msgs), messaging.ErrBrokerDown)
}

// A broker that does not end is stopped.
func TestCloseEndsPublish(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	cfg := config(n)
	cfg.CloseTimeout, cfg.PublishTimeout = time.Second, time.Hour
	spans := starts{name: make(chan string, 1)}
	cfg.Telemetry.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	b, err := Connect(t.Context(), cfg)
	require.NoError(t, err)
	// All producers of the topic are taken, for ever.
	top, err := b.topic("order")
	require.NoError(t, err)
	for range cap(top.room) {
		top.room <- struct{}{}
	}
	published := make(chan error, 1)
	go func() { published <- b.Publish(t.Context(), []event.Envelope{envelope("order", "a", 1)}) }()
	require.Equal(t, "publish", <-spans.name)
	if err := b.Close(); err != nil {
		require.ErrorContains(t, err, "has not confirmed the end of the connection within 1s", "a second may be too short for the broker")
	}
	require.ErrorIs(t, await.Receive(t, published, "the call of Publish ends with Close"), messaging.ErrUnknown)
}

// starts reports spans when they start.
type starts struct{ name chan string }

func (s starts) OnStart(_ context.Context, span sdktrace.ReadWriteSpan) { s.name <- span.Name() }
func (starts) OnEnd(sdktrace.ReadOnlySpan)                              {}
func (starts) Shutdown(context.Context) error                           { return nil }
func (starts) ForceFlush(context.Context) error                         { return nil }
