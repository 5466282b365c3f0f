package nats

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/messaging"
	own "github.com/oncebox/oncebox/messaging/nats/natsserver"
)

// start starts a server with these options.
func start(t *testing.T, dir string, options func(*natsserver.Options)) *own.Server {
	t.Helper()
	s, err := own.Start(&own.Config{Dir: dir, Options: options})
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	return s
}

// failures publishes and returns the errors by index.
func failures(t *testing.T, b *Broker, msgs []event.Envelope) map[int]error {
	t.Helper()
	err := b.Publish(t.Context(), msgs)
	failed, ok := errors.AsType[*messaging.PublishError](err)
	require.True(t, ok, "%v", err)
	return failed.Failed
}

// stored returns how many messages the stream of the topic order has.
func stored(t *testing.T, b *Broker) int {
	t.Helper()
	s, err := b.session.Stream(t.Context(), "oncebox-order")
	require.NoError(t, err)
	return int(s.CachedInfo().State.Msgs)
}

// The same message is stored once, and a message with the same id and another content is stored, too.
func TestCopiesAreStoredOnce(t *testing.T) {
	t.Parallel()
	b := connect(t, config(serve(t).URL()))
	msgs := events(1, 3)
	require.NoError(t, b.Publish(t.Context(), msgs))
	require.NoError(t, b.Publish(t.Context(), msgs[1:]), "a copy counts as stored")
	require.Equal(t, 3, stored(t, b))
	msgs[1].Payload = []byte("edited")
	require.NoError(t, b.Publish(t.Context(), msgs[1:2]))
	require.Equal(t, 4, stored(t, b), "an edited event was taken for a copy")
	msgs[1].Metadata = event.Metadata{"run": "2"}
	require.NoError(t, b.Publish(t.Context(), msgs[1:2]))
	require.Equal(t, 5, stored(t, b), "an event with other metadata was taken for a copy")
}

// What was sent over a connection that is lost gets no answer, so Publish does not wait for it. The copies are not stored.
func TestLostConnectionEndsMessages(t *testing.T) {
	t.Parallel()
	server := serve(t)
	link := linktest.New(t, server.URL())
	cfg := config(link.URL)
	cfg.PublishTimeout, cfg.DuplicateWindow = time.Hour, 2*time.Hour
	b := connect(t, cfg)
	msgs := append(events(1, 2), event.Envelope{ID: "other", Topic: "order", RoutingKey: "another key"})
	require.NoError(t, b.Declare(t.Context(), []string{"order"}, nil))
	link.SetFrozen(true)
	before := b.session.Conn.Stats().OutMsgs
	published := make(chan error, 1)
	go func() { published <- b.Publish(t.Context(), msgs) }()
	await.True(t, func() bool { return b.session.Conn.Stats().OutMsgs == before+2 }, "two messages are under way")
	link.Cut() // before the thaw, or the messages could reach the server first
	link.SetFrozen(false)
	failed, ok := errors.AsType[*messaging.PublishError](<-published)
	require.True(t, ok)
	require.ErrorIs(t, failed.Failed[0], messaging.ErrUnknown)
	require.ErrorIs(t, failed.Failed[1], messaging.ErrBehind)
	require.ErrorIs(t, failed.Failed[2], messaging.ErrUnknown)
	require.NoError(t, b.Publish(t.Context(), msgs))
	require.Equal(t, 3, stored(t, b))
}

// A server that restarts is an outage: publishers and receivers go on by themselves, and nothing is lost or out of order.
func TestServerThatRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, err := own.Start(&own.Config{Dir: dir})
	require.NoError(t, err)
	address, err := url.Parse(server.URL())
	require.NoError(t, err)
	port, err := strconv.Atoi(address.Port())
	require.NoError(t, err)
	b := connect(t, config(server.URL()))
	r := subscribe(t, b, messaging.Subscription{Name: "billing"})
	require.NoError(t, b.Publish(t.Context(), events(1, 10)))
	require.Equal(t, numbers(1, 5), receive(t, r, 5, true))
	server.Stop()

	for err = messaging.ErrUnknown; !errors.Is(err, messaging.ErrBrokerDown); { // the first call may notice the end only when it has sent something
		require.ErrorIs(t, err, messaging.ErrUnknown)
		moment, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err = b.Publish(moment, events(11, 12))
		cancel()
	}
	await.True(t, func() bool { return r.(messaging.ConnectedReceiver).Connection().IsAway() }, "the receiver has noticed")
	published := make(chan error, 1)
	go func() { published <- b.Publish(t.Context(), events(11, 20)) }()
	server, err = own.Start(&own.Config{Dir: dir, Port: port})
	require.NoError(t, err)
	defer server.Stop()
	require.NoError(t, <-published, "Publish waits for the server")
	seen, first := map[int64]bool{}, []int64{}
	for len(first) < 15 {
		if got := receive(t, r, 1, true)[0]; !seen[got] && got > 5 {
			seen[got] = true
			first = append(first, got)
		}
	}
	require.Equal(t, numbers(6, 20), first)
	require.False(t, r.(messaging.ConnectedReceiver).Connection().IsAway())
}

// Connect returns while the server is away, and everything works when it has come.
func TestServerThatComesLate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, err := own.Start(&own.Config{Dir: dir})
	require.NoError(t, err)
	address := server.URL()
	server.Stop()
	cfg := config(address)
	cfg.Required, cfg.Topics = false, []string{"order"}
	b := connect(t, cfg)
	moment, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, b.Publish(moment, events(1, 1)), messaging.ErrBrokerDown)

	cfg.Required, cfg.ConnectTimeout = true, 200*time.Millisecond
	_, err = Connect(t.Context(), cfg)
	require.ErrorIs(t, err, messaging.ErrBrokerDown)

	u, err := url.Parse(address)
	require.NoError(t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	server, err = own.Start(&own.Config{Dir: dir, Port: port})
	require.NoError(t, err)
	defer server.Stop()
	require.NoError(t, b.Publish(t.Context(), events(1, 1)))
	require.Equal(t, 1, stored(t, b))
}

func TestStateOfASubscription(t *testing.T) {
	t.Parallel()
	b := connect(t, config(serve(t).URL()))
	state, err := b.ReadSubscription(t.Context(), "order", "billing")
	require.NoError(t, err)
	require.True(t, state.Missing, "there is no stream")
	require.NoError(t, b.Publish(t.Context(), events(1, 5)))
	state, err = b.ReadSubscription(t.Context(), "order", "billing")
	require.NoError(t, err)
	require.True(t, state.Missing, "there is no consumer")
	require.NoError(t, b.Declare(t.Context(), nil, []messaging.Subscription{{Topic: "order", Name: "billing"}}))
	state, err = b.ReadSubscription(t.Context(), "order", "billing")
	require.NoError(t, err)
	require.Equal(t, messaging.SubscriptionState{Messages: 5, Unattended: 1}, state)

	r := subscribe(t, b, messaging.Subscription{Name: "billing"})
	receive(t, r, 4, true)
	settled, err := b.ReadSubscription(t.Context(), "order", "billing")
	require.NoError(t, err)
	require.Zero(t, settled.Unattended)
	require.Positive(t, settled.Consumers)
	m, err := r.Receive(t.Context())
	require.NoError(t, err)
	r.(messaging.BacklogReceiver).Leave(m)
	var backlog messaging.Backlog
	await.True(t, func() bool { // the acknowledgements are under way
		backlog, err = r.(messaging.BacklogReceiver).Backlog(t.Context())
		require.NoError(t, err)
		return backlog.Messages == 0
	}, "an empty backlog")
	require.EqualValues(t, 1, backlog.Left)
	require.NoError(t, r.Close()) // then the server has all acknowledgements
	after, err := b.ReadSubscription(t.Context(), "order", "billing")
	require.NoError(t, err)
	require.EqualValues(t, 1, after.Messages)
	require.NotEqual(t, state.Settled, after.Settled)

	kept, err := b.Retention(t.Context(), "order")
	require.NoError(t, err)
	require.Equal(t, 7*24*time.Hour, kept)
	kept, err = b.Retention(t.Context(), "none")
	require.NoError(t, err)
	require.Zero(t, kept)
}
