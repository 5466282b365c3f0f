package nats

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
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

// A stream that is full takes no message, also none that would still fit: the order would be lost.
func TestFullStreamIsATopicError(t *testing.T) {
	t.Parallel()
	server := serve(t)
	cfg := config(server.URL())
	cfg.MaxBytes = 8 << 10
	b := connect(t, cfg)
	msgs := events(1, 3)
	msgs[0].Payload = make([]byte, 6<<10)
	msgs[1].Payload = make([]byte, 6<<10)
	failed := failures(t, b, msgs)
	require.Len(t, failed, 2)
	topic, ok := errors.AsType[*messaging.TopicError](failed[1])
	require.True(t, ok, "%v", failed[1])
	require.Equal(t, "order", topic.Topic)
	require.ErrorIs(t, failed[2], messaging.ErrBehind)
	require.Equal(t, 1, stored(t, b), "the small message was stored before the large one of its key")
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

// A stream that somebody deleted is a topic in trouble; the next call makes it again.
func TestDeletedStream(t *testing.T) {
	t.Parallel()
	b := connect(t, config(serve(t).URL()))
	r := subscribe(t, b, messaging.Subscription{Name: "billing"})
	require.NoError(t, b.Publish(t.Context(), events(1, 1)))
	require.NoError(t, b.session.JS.DeleteStream(t.Context(), "oncebox-order"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		m, err := r.Receive(ctx)
		if err != nil {
			require.NotErrorIs(t, err, context.DeadlineExceeded, "the receiver waits for ever")
			require.ErrorContains(t, err, "subscribe again")
			break
		}
		require.NotNil(t, m) // message 1 may have come before
	}
	failed := failures(t, b, events(2, 3))
	require.Len(t, failed, 2)
	_, ok := errors.AsType[*messaging.TopicError](failed[0])
	require.True(t, ok, "%v", failed[0])
	require.NoError(t, b.Publish(t.Context(), events(2, 3)))
	require.Equal(t, numbers(2, 3), receive(t, subscribe(t, b, messaging.Subscription{Name: "billing"}), 2, true))
}

// Without a permission, Publish and Subscribe say so at once: the server never answers.
func TestMissingPermissions(t *testing.T) {
	t.Parallel()
	server := start(t, t.TempDir(), func(o *natsserver.Options) {
		o.Users = []*natsserver.User{
			{Username: "all", Password: "p"},
			{Username: "reader", Password: "p", Permissions: &natsserver.Permissions{
				Publish: &natsserver.SubjectPermission{Allow: []string{"$JS.API.>"}},
			}},
			{Username: "nobody", Password: "p", Permissions: &natsserver.Permissions{
				Publish: &natsserver.SubjectPermission{Allow: []string{"other"}},
			}},
		}
	})
	as := func(user string) *Broker {
		cfg := config(server.URL())
		cfg.User, cfg.Password = user, "p"
		return connect(t, cfg)
	}
	require.NoError(t, as("all").Publish(t.Context(), events(1, 1)))
	for _, user := range []string{"reader", "nobody"} {
		failed := failures(t, as(user), events(2, 3))
		topic, ok := errors.AsType[*messaging.TopicError](failed[0])
		require.True(t, ok, "%s: %v", user, failed[0])
		require.ErrorContains(t, topic, "permission")
		require.Error(t, failed[1], user)
	}
	_, err := as("nobody").Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "billing"})
	require.ErrorContains(t, err, "permission")

	cfg := config(server.URL())
	cfg.User, cfg.Password, cfg.Required = "all", "wrong", false
	_, err = Connect(t.Context(), cfg)
	require.ErrorContains(t, err, "Authorization Violation")
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

// Streams and consumers with settings that break the guarantees are refused at the start, with the setting and the command that mends it.
func TestOtherSettingsAreRefused(t *testing.T) {
	t.Parallel()
	server := serve(t)
	b := connect(t, config(server.URL()))
	js := b.session.JS
	for topic, c := range map[string]jetstream.StreamConfig{
		"retention is":            {Retention: jetstream.InterestPolicy},
		"no_ack is":               {NoAck: true},
		"max_msgs_per_subject is": {MaxMsgsPerSubject: 1},
		"its subjects are":        {Subjects: []string{"elsewhere.>"}},
		"oncebox-partitions is":   {Metadata: map[string]string{"oncebox-partitions": "many"}},
	} {
		c.Name = b.Stream(topic)
		if c.Subjects == nil {
			c.Subjects = b.Subjects(topic, 4)
		}
		_, err := js.CreateStream(t.Context(), c)
		require.NoError(t, err)
		cfg := config(server.URL())
		cfg.Topics, cfg.Required = []string{topic}, false
		_, err = Connect(t.Context(), cfg)
		require.ErrorContains(t, err, topic)
		require.ErrorContains(t, err, "nats stream edit "+c.Name)
		err = b.Publish(t.Context(), []event.Envelope{{ID: "1", Topic: topic}})
		found, ok := errors.AsType[*messaging.TopicError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, topic, found.Topic)
	}
	require.NoError(t, b.Declare(t.Context(), []string{"order"}, nil))
	for name, c := range map[string]jetstream.ConsumerConfig{
		"ack policy is":      {AckPolicy: jetstream.AckNonePolicy},
		"max_deliver is":     {MaxDeliver: 3},
		"headers_only is":    {HeadersOnly: true},
		"filter is":          {FilterSubject: "oncebox.order.1"},
		"priority groups is": {AckPolicy: jetstream.AckExplicitPolicy},
	} {
		c.Durable = b.Consumer(name, 0)
		_, err := js.CreateConsumer(t.Context(), "oncebox-order", c)
		require.NoError(t, err, name)
		_, err = b.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: name})
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, err, "nats consumer rm oncebox-order")
		require.True(t, messaging.IsPermanent(err), "%v", err)
	}
}

// A stream that was made by hand is used with its own number of partitions.
func TestStreamThatWasMadeByHand(t *testing.T) {
	t.Parallel()
	server := serve(t)
	b := connect(t, config(server.URL()))
	_, err := b.session.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "oncebox-order", Subjects: b.Subjects("order", 3)})
	require.NoError(t, err)
	require.NoError(t, b.Publish(t.Context(), events(1, 2)))
	require.Equal(t, numbers(1, 2), receive(t, subscribe(t, b, messaging.Subscription{Name: "billing"}), 2, true))
	_, err = b.session.Consumer(t.Context(), "oncebox-order", "billing@3")
	require.ErrorIs(t, err, jetstream.ErrConsumerNotFound)
}

// With Declare "check" nothing is made, and what is missing is an error that lasts.
func TestOnlyChecks(t *testing.T) {
	t.Parallel()
	server := serve(t)
	cfg := config(server.URL())
	cfg.Declare = Check
	b := connect(t, cfg)
	err := b.Declare(t.Context(), []string{"order"}, nil)
	require.ErrorContains(t, err, "nats stream add oncebox-order")
	require.NotErrorIs(t, err, messaging.ErrBrokerDown)
	failed := failures(t, b, events(1, 1))
	_, ok := errors.AsType[*messaging.TopicError](failed[0])
	require.True(t, ok, "%v", failed[0])

	require.NoError(t, connect(t, config(server.URL())).Declare(t.Context(), []string{"order"}, nil))
	require.NoError(t, b.Publish(t.Context(), events(1, 1)))
	_, err = b.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "billing"})
	require.ErrorContains(t, err, "ONCEBOX_NATS_DECLARE=make")
	require.NoError(t, connect(t, config(server.URL())).Declare(t.Context(), nil, []messaging.Subscription{{Topic: "order", Name: "billing"}}))
	require.Equal(t, numbers(1, 1), receive(t, subscribe(t, b, messaging.Subscription{Name: "billing"}), 1, true))
}

// A subscription keeps its type: with another one, it would begin again.
func TestTypeOfASubscriptionStays(t *testing.T) {
	t.Parallel()
	b := connect(t, config(serve(t).URL()))
	for _, types := range [][2]messaging.SubscriptionType{{messaging.Failover, messaging.Shared}, {messaging.Shared, messaging.Failover}} {
		s := messaging.Subscription{Topic: "order", Name: types[0].String(), Type: types[0]}
		require.NoError(t, b.Declare(t.Context(), nil, []messaging.Subscription{s}))
		s.Type = types[1]
		_, err := b.Subscribe(t.Context(), s)
		require.ErrorContains(t, err, "is of the type "+types[0].String())
		require.True(t, messaging.IsPermanent(err))
	}
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
