package nats

import (
	"context"
	"errors"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

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

// A message that the server, or its stream, will never take is refused for good. Others go on, but for those of its key.
func TestMessageThatIsTooLarge(t *testing.T) {
	t.Parallel()
	for says, limit := range map[string]func(t *testing.T) *Broker{
		"max_payload of the server allows 8192": func(t *testing.T) *Broker {
			t.Helper()
			return connect(t, config(start(t, t.TempDir(), func(o *natsserver.Options) { o.MaxPayload = 8 << 10 }).URL()))
		},
		"max_msg_size of the stream oncebox-order 8192": func(t *testing.T) *Broker {
			t.Helper()
			b := connect(t, config(serve(t).URL()))
			_, err := b.session.JS.CreateStream(t.Context(),
				jetstream.StreamConfig{Name: "oncebox-order", Subjects: b.Subjects("order", 2), MaxMsgSize: 8 << 10})
			require.NoError(t, err)
			return b
		},
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			b := limit(t)
			msgs := append(events(1, 2), event.Envelope{ID: "other", Topic: "order", RoutingKey: "another key"})
			msgs[0].Payload = make([]byte, 9<<10)
			failed := failures(t, b, msgs)
			require.Len(t, failed, 2)
			require.True(t, messaging.IsPermanent(failed[0]), "%v", failed[0])
			require.ErrorContains(t, failed[0], "its payload has 9216 bytes")
			require.ErrorContains(t, failed[0], says)
			require.ErrorIs(t, failed[1], messaging.ErrBehind)
			require.Equal(t, 1, stored(t, b))
		})
	}
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

// After a purge the subscription goes on with what is published from then on.
func TestPurgedStream(t *testing.T) {
	t.Parallel()
	b := connect(t, config(serve(t).URL()))
	for _, kind := range []messaging.SubscriptionType{messaging.Failover, messaging.Shared} {
		r := subscribe(t, b, messaging.Subscription{Name: kind.String(), Type: kind, Queue: 2})
		require.NoError(t, b.Publish(t.Context(), events(1, 9)))
		require.Equal(t, numbers(1, 1), receive(t, r, 1, true))
		held, err := r.Receive(t.Context())
		require.NoError(t, err)
		st, err := b.session.Stream(t.Context(), "oncebox-order")
		require.NoError(t, err)
		require.NoError(t, st.Purge(t.Context()))
		require.NoError(t, b.Publish(t.Context(), events(10, 12)))
		require.NoError(t, r.Ack(t.Context(), held))
		last := int64(2)
		for last < 12 { // some of 3 to 9 may wait in this process
			got := receive(t, r, 1, true)[0]
			require.Greater(t, got, last)
			last = got
		}
		require.NoError(t, r.Close())
		require.NoError(t, b.session.JS.DeleteStream(t.Context(), "oncebox-order"))
		b.keeper.Forget("order")
	}
}
