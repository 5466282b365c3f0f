//go:build nightly

package rabbitmq

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
)

func subscribe(t *testing.T, b *Broker, s messaging.Subscription) messaging.Receiver {
	t.Helper()
	r, err := b.Subscribe(patient(t), s)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

func receive(t *testing.T, r messaging.Receiver) *messaging.Message {
	t.Helper()
	m, err := r.Receive(patient(t))
	require.NoError(t, err)
	return m
}

// A message of another program has whatever types AMQP allows. Everything becomes text, and nothing panics.
func TestMessageOfAnotherProgram(t *testing.T) {
	t.Parallel()
	b := declared(t, billing("foreign.text"))
	at := time.Unix(1_700_000_000, 0).UTC()
	operator(t, func(ch *amqp.Channel) error {
		return ch.Publish("oncebox", "foreign.text", true, false, amqp.Publishing{
			MessageId: "m-1", Type: "order.placed", AppId: "legacy", Timestamp: at, ContentType: "text/plain", CorrelationId: "c-1", ReplyTo: "answers",
			Body: []byte("hello"), Headers: amqp.Table{
				"text": "Köln", "bytes": []byte("raw"), "binary": []byte{0xff, 0xfe}, "yes": true, "int": int32(-7), "long": int64(1) << 40, "float": 1.5,
				"time": at, "nothing": nil, "decimal": amqp.Decimal{Scale: 2, Value: -5}, "list": []any{"a", int32(1), nil, []byte("b")},
				"table": amqp.Table{"in": amqp.Table{"deep": true}}, "cloudEvents:subject": "o-7", "x-delivery-count": int32(9),
			},
		})
	})
	m := receive(t, subscribe(t, b, billing("foreign.text")))
	require.Equal(t, event.Envelope{
		ID: "m-1", Type: "order.placed", Source: "legacy", Topic: "foreign.text", AggregateID: "o-7", ContentType: "text/plain", Payload: []byte("hello"),
		OccurredAt: m.OccurredAt,
		Metadata: event.Metadata{
			"text": "Köln", "bytes": "raw", "binary": "//4=", "yes": "true", "int": "-7", "long": "1099511627776", "float": "1.5",
			"time": "2023-11-14T22:13:20Z", "nothing": "", "decimal": "-0.05", "list": `["a",1,null,"b"]`, "table": `{"in":{"deep":true}}`,
			event.CorrelationID: "c-1", "reply-to": "answers",
		},
	}, m.Envelope)
}

// Without an id, two messages with the same content are still two.
func TestMessagesWithoutAnID(t *testing.T) {
	t.Parallel()
	b := declared(t, billing("nameless"))
	r := subscribe(t, b, billing("nameless"))
	operator(t, func(ch *amqp.Channel) error {
		for range 2 {
			if err := ch.Publish("oncebox", "nameless", true, false, amqp.Publishing{Body: []byte("x")}); err != nil {
				return err
			}
		}
		return nil
	})
	first, second := receive(t, r), receive(t, r)
	require.NotEqual(t, first.ID, second.ID)
	require.NoError(t, r.Redeliver(patient(t), first))
	again := receive(t, r)
	require.Equal(t, first.ID, again.ID, "it is the same message")
	require.Equal(t, 2, again.Attempt)
}

func TestDecimals(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]amqp.Decimal{
		"123.45": {Scale: 2, Value: 12345}, "-123": {Value: -123}, "0.005": {Scale: 3, Value: 5}, "-2147483648": {Value: -1 << 31},
	} {
		require.Equal(t, want, decimal(d))
	}
}

// Somebody deletes a queue under its consumer: the others go on, the queue is made again, and the log says what was lost.
func TestQueueIsDeletedUnderItsConsumer(t *testing.T) {
	t.Parallel()
	s := billing("undermined")
	b := connect(t, config(server(t).URL))
	r := subscribe(t, b, s)
	for n := range 8 {
		operator(t, func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete(fmt.Sprintf("oncebox:undermined:billing:%d", n), false, false, false)
			return err
		})
	}
	var msgs []event.Envelope
	for n := range 20 {
		msgs = append(msgs, envelope("undermined", fmt.Sprintf("key-%d", n), 1))
	}
	seen := map[string]bool{}
	for b.Publish(patient(t), msgs) != nil { // until all queues are there again
	}
	for len(seen) < len(msgs) {
		m := receive(t, r)
		seen[m.ID] = true
		require.NoError(t, r.Ack(patient(t), m))
	}
}

// With Declare "check" an operator has to act, so the receiver ends with the reason.
func TestQueueIsDeletedAndNotOurs(t *testing.T) {
	t.Parallel()
	declared(t, billing("theirs"))
	cfg := config(server(t).URL)
	cfg.Declare = Check
	r := subscribe(t, connect(t, cfg), billing("theirs"))
	operator(t, func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete("oncebox:theirs:billing:3", false, false, false)
		return err
	})
	_, err := r.Receive(patient(t))
	require.ErrorContains(t, err, "oncebox:theirs:billing:3")
	require.ErrorContains(t, err, "subscribe again")
}

func TestBacklog(t *testing.T) {
	t.Parallel()
	s := billing("waiting")
	b := declared(t, s)
	state := func() messaging.SubscriptionState {
		state, err := b.ReadSubscription(patient(t), "waiting", "billing")
		require.NoError(t, err)
		return state
	}
	missing, err := b.ReadSubscription(patient(t), "waiting", "nobody")
	require.NoError(t, err)
	require.True(t, missing.Missing)
	var msgs []event.Envelope
	for n := range 10 {
		msgs = append(msgs, envelope("waiting", fmt.Sprintf("key-%d", n), 1))
	}
	require.NoError(t, b.Publish(patient(t), msgs))
	await.True(t, func() bool { return state().Messages == 10 }, "the broker counts the messages")
	require.Zero(t, state().Consumers)
	require.Positive(t, state().Unattended)

	r := subscribe(t, b, s).(messaging.BacklogReceiver)
	backlog := func() messaging.Backlog {
		got, err := r.Backlog(patient(t))
		require.NoError(t, err)
		return got
	}
	first, second := receive(t, r), receive(t, r)
	await.True(t, func() bool { return backlog().Messages == 10 }, "all messages have come")
	require.NoError(t, r.Ack(patient(t), first))
	r.Leave(second)
	r.Leave(second)
	require.Equal(t, messaging.Backlog{Topic: "waiting", Messages: 8, Left: 1, Settled: 1}, backlog())
	require.Equal(t, 1, state().Consumers)

	// Of two receivers, the one that gets nothing has no backlog.
	idle := subscribe(t, b, s).(messaging.BacklogReceiver)
	got, err := idle.Backlog(patient(t))
	require.NoError(t, err)
	require.Zero(t, got.Messages)
}

// Messages that are left take places of the prefetch. Before they stop a queue, they come again.
func TestLeftMessagesStopNoQueue(t *testing.T) {
	t.Parallel()
	cfg := config(server(t).URL)
	cfg.Queues, cfg.Prefetch = 1, 4
	b := connect(t, cfg)
	s := billing("left")
	r := subscribe(t, b, s).(messaging.BacklogReceiver)
	var msgs []event.Envelope
	for n := range 6 {
		msgs = append(msgs, envelope("left", fmt.Sprintf("key-%d", n), n))
	}
	require.NoError(t, b.Publish(patient(t), msgs))
	for range 4 { // all places
		r.Leave(receive(t, r))
	}
	seen := map[int64]bool{}
	for len(seen) < 6 {
		m := receive(t, r)
		seen[m.Sequence] = true
		require.NoError(t, r.Ack(patient(t), m))
	}
}

func TestDeliveriesAreCounted(t *testing.T) {
	t.Parallel()
	s := billing("counted")
	b := declared(t, s)
	require.NoError(t, b.Publish(patient(t), []event.Envelope{envelope("counted", "a", 1)}))
	for n := range 3 {
		r, err := b.Subscribe(patient(t), s)
		require.NoError(t, err)
		require.Equal(t, n+1, receive(t, r).Attempt)
		require.NoError(t, r.Close())
	}
}

// What comes after the end of a channel comes again over the next one. Delivered now, it would stand between messages of the next one.
func TestEndedAttachmentDeliversNothing(t *testing.T) {
	t.Parallel()
	r := &receiver{Gate: adapters.NewGate()}
	a := &attachment{receiver: r, held: map[string]int{}}
	a.arrive(&receipt{at: a})
	require.Len(t, r.arrived, 1)
	a.ended = true
	a.arrive(&receipt{at: a})
	require.Len(t, r.arrived, 1)
}
