package rabbitmq

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/messaging"
)

func requireTopicError(t *testing.T, topic string, err error) {
	t.Helper()
	found, ok := errors.AsType[*messaging.TopicError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, topic, found.Topic)
	require.False(t, messaging.IsPermanent(err))
}

// The broker confirms a message that no queue gets, just after it has returned it.
func TestReturnedMessagesAreNotConfirmed(t *testing.T) {
	t.Parallel()
	b := declared(t, billing("routed"))
	var msgs []event.Envelope
	for n := range 300 {
		msgs = append(msgs, envelope([]string{"routed", "unrouted"}[n%2], string(rune('a'+n%7)), n))
	}
	failed := failedOf(t, b.Publish(patient(t), msgs))
	for n, m := range msgs {
		if m.Topic == "routed" {
			require.NoError(t, failed[n])
			continue
		}
		if !errors.Is(failed[n], messaging.ErrBehind) {
			requireTopicError(t, "unrouted", failed[n])
		}
		require.Error(t, failed[n], "a message for nobody is confirmed")
	}
	require.ErrorContains(t, failed[1], "declare its subscriptions")
}

func TestMessageForNobodyAlone(t *testing.T) {
	t.Parallel()
	b := declared(t, billing("somebody"))
	failed := failedOf(t, b.Publish(patient(t), []event.Envelope{envelope("nobody", "a", 1)}))
	requireTopicError(t, "nobody", failed[0])
	require.ErrorContains(t, failed[0], "declare its subscriptions")
}

// A full queue refuses the first message of a key; the next ones of the key may not be stored when there is room again.
func TestRefusedMessageLetsNoOtherPass(t *testing.T) {
	t.Parallel()
	s := billing("full")
	b := declared(t, s)
	policy := "/policies/" + server(t).vhost + "/full"
	require.NoError(t, server(t).put(policy, `{"pattern":"^oncebox:full:","definition":{"max-length":1,"overflow":"reject-publish"},"apply-to":"queues"}`))
	calls := 0
	var failed map[int]error
	for n := 1; len(failed) == 0; n++ { // the broker applies a policy, and counts, a little later
		msgs := []event.Envelope{envelope("full", "k", 3*n), envelope("full", "k", 3*n+1), envelope("full", "k", 3*n+2)}
		if err := b.Publish(patient(t), msgs); err != nil {
			failed = failedOf(t, err)
		}
		calls++
	}
	first := 3 - len(failed)
	requireTopicError(t, "full", failed[first])
	require.ErrorContains(t, failed[first], "reject-publish")
	for n := first + 1; n < 3; n++ {
		require.ErrorIs(t, failed[n], messaging.ErrBehind)
	}
	require.NoError(t, server(t).remove(policy))
	r := subscribe(t, b, s).(messaging.BacklogReceiver)
	stored := 3*calls - len(failed)
	for n := range stored {
		m := receive(t, r)
		require.EqualValues(t, n+3, m.Sequence)
		require.NoError(t, r.Ack(patient(t), m))
	}
	left, err := r.Backlog(patient(t))
	require.NoError(t, err)
	require.Zero(t, left.Messages, "a message behind a refused one was stored")
}

// The limit of the broker may be smaller than that of the configuration. It closes the channel then; only the message is at fault.
func TestMessageOverTheLimitOfTheBroker(t *testing.T) {
	t.Parallel()
	refusal := &amqp.Error{Code: amqp.PreconditionFailed, Reason: "PRECONDITION_FAILED - message size 5000 is larger than configured max size 4096"}
	require.True(t, messaging.IsPermanent(classify("order", refusal, 5000)))
	err := classify("order", refusal, 4096)
	require.False(t, messaging.IsPermanent(err), "it was sent beside the large one")
	require.ErrorIs(t, err, messaging.ErrUnknown)
	require.ErrorIs(t, classify("order", nil, 1), messaging.ErrUnknown)
}

// A frame that is too large would end the connection, and again at each try.
func TestHeadersThatFitIntoNoFrame(t *testing.T) {
	t.Parallel()
	b := declared(t, billing("frames"))
	large := envelope("frames", "a", 1)
	large.Metadata = event.Metadata{"x": strings.Repeat("x", 131072)}
	msgs := []event.Envelope{large, envelope("frames", "b", 1)}
	failed := failedOf(t, b.Publish(patient(t), msgs))
	require.Len(t, failed, 1)
	require.True(t, messaging.IsPermanent(failed[0]))
	require.ErrorContains(t, failed[0], "frame_max")
	// The calculation is no more than a few bytes above the true size: a little less goes through.
	large.Metadata["x"] = large.Metadata["x"][:131072-headerSize(new(messageOf(&msgs[1])))-64]
	require.NoError(t, b.Publish(patient(t), []event.Envelope{large}))
}

func TestNamesThatAreNoShortText(t *testing.T) {
	t.Parallel()
	b := declared(t, billing("texts"))
	long := envelope("texts", strings.Repeat("k", 1000), 1)
	long.ID, long.Type, long.Source, long.ContentType = strings.Repeat("i", 300), strings.Repeat("t", 300), strings.Repeat("s", 300), strings.Repeat("c", 300)
	long.OccurredAt = time.Date(1815, 12, 10, 0, 0, 0, 0, time.UTC)
	require.NoError(t, b.Publish(patient(t), []event.Envelope{long}))
	r, err := b.Subscribe(patient(t), billing("texts"))
	require.NoError(t, err)
	m, err := r.Receive(patient(t))
	require.NoError(t, err)
	require.Equal(t, []string{long.ID, long.Type, long.Source, long.ContentType, long.RoutingKey},
		[]string{m.ID, m.Type, m.Source, m.ContentType, m.RoutingKey})
	require.True(t, long.OccurredAt.Equal(m.OccurredAt))
}

// While the broker has an alarm nothing is sent, and it costs no message an attempt.
func TestBrokerWithAnAlarm(t *testing.T) {
	t.Parallel()
	b := declared(t, billing("alarm"))
	msgs := []event.Envelope{envelope("alarm", "a", 1)}
	s, err := b.publisher.wait(patient(t))
	require.NoError(t, err)
	s.setBlocked(amqp.Blocking{Active: true, Reason: "low on memory"})
	ctx, cancel := context.WithTimeout(patient(t), time.Second)
	defer cancel()
	failed := failedOf(t, b.Publish(ctx, msgs))
	require.ErrorIs(t, failed[0], messaging.ErrBrokerDown)
	require.ErrorContains(t, failed[0], "low on memory")
	done := make(chan error, 1)
	go func() { done <- b.Publish(patient(t), msgs) }()
	s.setBlocked(amqp.Blocking{})
	require.NoError(t, <-done)
}

// Somebody deletes the exchange: messages are not confirmed, and with the next call the subscriptions that this process knows are there again.
func TestExchangeIsDeleted(t *testing.T) {
	t.Parallel()
	cfg := config(server(t).URL)
	cfg.Exchange, cfg.Subscriptions = "deleted", []messaging.Subscription{billing("gone")}
	b := connect(t, cfg)
	msgs := []event.Envelope{envelope("gone", "a", 1)}
	require.NoError(t, b.Publish(patient(t), msgs))
	for _, name := range []string{"deleted:gone:billing", "deleted"} {
		operator(t, func(ch *amqp.Channel) error { return ch.ExchangeDelete(name, false, false) })
		requireTopicError(t, "gone", failedOf(t, b.Publish(patient(t), msgs))[0])
		require.NoError(t, b.Publish(patient(t), msgs))
	}
}

// The network is gone for as long as the caller waits.
func TestNetworkIsGone(t *testing.T) {
	t.Parallel()
	s := billing("away")
	declared(t, s)
	l := linktest.New(t, server(t).URL)
	cfg := config(l.URL)
	b := connect(t, cfg)
	require.NoError(t, b.Publish(patient(t), []event.Envelope{envelope("away", "a", 1)}))
	l.SetDown(true)
	ctx, cancel := context.WithTimeout(patient(t), 100*time.Millisecond)
	defer cancel()
	for _, err := range failedOf(t, b.Publish(ctx, []event.Envelope{envelope("away", "a", 2)})) {
		require.True(t, errors.Is(err, messaging.ErrUnknown) || errors.Is(err, messaging.ErrBrokerDown), "%v", err)
	}
	l.SetDown(false)
	await.True(t, func() bool { // a call that met the old connection has sent nothing
		err := b.Publish(patient(t), []event.Envelope{envelope("away", "a", 2)})
		require.True(t, err == nil || errors.Is(err, messaging.ErrBrokerDown) || errors.Is(err, messaging.ErrUnknown), "%v", err)
		return err == nil
	}, "the message is taken")
}

// A broker that reads nothing, while its client has more to write than the network holds. The client waits in its write, with a lock that it needs to
// close the connection.
func TestBrokerThatReadsNothing(t *testing.T) {
	t.Parallel()
	s := billing("deaf")
	declared(t, s)
	l := linktest.New(t, server(t).URL)
	cfg := config(l.URL)
	cfg.ConnectionTimeout, cfg.Heartbeat, cfg.MaxMessageBytes = time.Second, hang, 32<<20
	b := connect(t, cfg)
	insist(t, b, []event.Envelope{envelope("deaf", "a", 1)})
	large := envelope("deaf", "a", 2)
	large.Payload = make([]byte, 24<<20)
	l.SetFrozen(true)
	await.True(t, func() bool {
		ctx, cancel := context.WithTimeout(patient(t), 100*time.Millisecond)
		defer cancel()
		err := failedOf(t, b.Publish(ctx, []event.Envelope{large}))[0]
		require.True(t, errors.Is(err, messaging.ErrUnknown) || errors.Is(err, messaging.ErrBrokerDown), "%v", err)
		s, _, _ := b.publisher.state()
		return s == nil
	}, "the connection counts as lost")
	l.SetFrozen(false)
	insist(t, b, []event.Envelope{large})
}
