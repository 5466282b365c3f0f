package pulsar

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
)

// away is a way to the broker that ends every connection until it is opened.
func away(t *testing.T, n *pulsartest.Namespace) (*link, *Config) {
	t.Helper()
	l := newLink(t, n.URL)
	l.setDown(true)
	cfg := declared(n, "order", "s")
	cfg.URL, cfg.OperationTimeout = l.url, 200*time.Millisecond
	return l, cfg
}

// A broker that is away at the start is waited for. What is published meanwhile fails as with any broker that is down, and when it
// comes what is declared is made before anything else.
func TestBrokerThatComesLate(t *testing.T) {
	t.Parallel()
	var log logbook
	n := pulsartest.Open(t)
	l, cfg := away(t, n)
	cfg.Logger = log.logger()
	b := connect(t, cfg)
	require.Equal(t, 1, log.count("Pulsar cannot be reached and is waited for"))

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	msgs := []event.Envelope{envelope("order", "a", 1)}
	require.ErrorIs(t, b.Publish(ctx, msgs), messaging.ErrBrokerDown)
	_, err := b.Subscribe(ctx, messaging.Subscription{Topic: "order", Name: "s"})
	require.ErrorIs(t, err, messaging.ErrBrokerDown)
	require.ErrorIs(t, b.Declare(ctx, []string{"order"}, nil), messaging.ErrBrokerDown)
	_, err = b.Keeps(ctx, "order")
	require.ErrorIs(t, err, messaging.ErrBrokerDown)

	published := make(chan error, 1)
	go func() { published <- b.Publish(patient(t), msgs) }()
	l.setDown(false)
	require.NoError(t, await.Receive(t, published, "the call that waited is served"))
	require.Equal(t, 1, log.count("Pulsar is reached"))
	partitions, err := b.admin.partitions(patient(t), "order")
	require.NoError(t, err)
	require.Equal(t, 4, partitions, "the topic was declared before it was published to")
	r, err := b.Subscribe(patient(t), messaging.Subscription{Topic: "order", Name: "s"})
	require.NoError(t, err)
	receiveAll(t, r, 1)
}

// Until what Config declares is made the broker is not used, although it is there.
func TestNothingIsDoneBeforeTheStart(t *testing.T) {
	t.Parallel()
	b := connect(t, config(pulsartest.Open(t)))
	b.start.done = make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	msgs := []event.Envelope{envelope("order", "a", 1)}
	require.ErrorIs(t, b.Publish(ctx, msgs), messaging.ErrBrokerDown)
	require.ErrorIs(t, b.Declare(ctx, []string{"order"}, nil), messaging.ErrBrokerDown)
	_, err := b.Subscribe(ctx, messaging.Subscription{Topic: "order", Name: "s"})
	require.ErrorIs(t, err, messaging.ErrBrokerDown)
	_, err = b.Keeps(ctx, "order")
	require.ErrorIs(t, err, messaging.ErrBrokerDown)
	close(b.start.done)
	require.NoError(t, b.Publish(patient(t), msgs))
}

// Nothing of the waiting outlives Close, nor holds it up.
func TestCloseWhileTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	b, err := Connect(t.Context(), &Config{URL: "pulsar://" + nobody, Logger: new(logbook).logger(), CloseTimeout: hang})
	require.NoError(t, err)
	published := make(chan error, 1)
	go func() {
		published <- b.Publish(context.Background(), []event.Envelope{envelope("order", "a", 1)})
	}()
	require.NoError(t, b.Close())
	require.ErrorIs(t, await.Receive(t, published, "the call of Publish ends with Close"), messaging.ErrBrokerDown)
}

func TestConnectToAWebServer(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	url := "pulsar://" + strings.TrimPrefix(web.URL, "http://")
	_, err := Connect(t.Context(), &Config{URL: url, OperationTimeout: 2 * time.Second, ConnectionTimeout: hang, ConnectTimeout: hang, Logger: new(logbook).logger()})
	require.ErrorIs(t, err, errWrongPort)
	require.ErrorContains(t, err, "ONCEBOX_PULSAR_URL")
}

func TestConnectWithoutTheTokenFile(t *testing.T) {
	_, err := Connect(t.Context(), &Config{URL: "pulsar://" + nobody, TokenFile: "no such file"})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "ONCEBOX_PULSAR_TOKEN_FILE")
}
