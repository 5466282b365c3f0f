package rabbitmq

import (
	"context"
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
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
	foreign(t, "oncebox", "foreign.text", amqp.Publishing{
		MessageId: "m-1", Type: "order.placed", AppId: "legacy", Timestamp: at, ContentType: "text/plain", CorrelationId: "c-1", ReplyTo: "answers",
		Body: []byte("hello"), Headers: amqp.Table{
			"text": "Köln", "bytes": []byte("raw"), "binary": []byte{0xff, 0xfe}, "yes": true, "int": int32(-7), "long": int64(1) << 40, "float": 1.5,
			"time": at, "nothing": nil, "decimal": amqp.Decimal{Scale: 2, Value: -5}, "list": []any{"a", int32(1), nil, []byte("b")},
			"table": amqp.Table{"in": amqp.Table{"deep": true}}, "cloudEvents:subject": "o-7", "x-delivery-count": int32(9),
		},
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

// Without an id, two messages with the same content are still two. The handler that gets one again knows it by its id; after a broken connection
// the broker delivers both anew, and they have other ids.
func TestMessagesWithoutAnID(t *testing.T) {
	t.Parallel()
	b := declared(t, billing("nameless"))
	r := subscribe(t, b, billing("nameless"))
	foreign(t, "oncebox", "nameless", amqp.Publishing{Body: []byte("x")}, amqp.Publishing{Body: []byte("x")})
	seen := map[string]int{} // the attempt by id
	for range 20 {
		m := receive(t, r)
		if attempt, again := seen[m.ID]; again {
			require.GreaterOrEqual(t, len(seen), 2, "two messages")
			require.Equal(t, attempt+1, m.Attempt)
			return
		}
		if seen[m.ID] = m.Attempt; len(seen) >= 2 {
			require.NoError(t, r.Redeliver(patient(t), m))
		}
	}
	t.Fatalf("no message came again with its id: %v", seen)
}

// AMQP has 16 bits for it, and 65,536 would be 0: no limit.
func TestPrefetchFits(t *testing.T) {
	t.Parallel()
	r := &receiver{broker: &Broker{cfg: Config{Prefetch: 65536}}, queues: []string{"a"}}
	require.Equal(t, 65535, r.prefetch())
	r.broker.cfg.Prefetch, r.subscription.Queue = 1, 70000
	require.Equal(t, 65535, r.prefetch())
	r.subscription.Queue = 0
	require.Equal(t, 1, r.prefetch())
}

func TestDecimals(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]amqp.Decimal{
		"123.45": {Scale: 2, Value: 12345}, "-123": {Value: -123}, "0.005": {Scale: 3, Value: 5}, "-2147483648": {Value: -1 << 31},
	} {
		require.Equal(t, want, decimal(d))
	}
}

// The broker closes the channel of a consumer, as it does when a message is held for too long. The log says why, and the rest comes again.
func TestChannelIsClosedByTheBroker(t *testing.T) {
	t.Parallel()
	var log logbook.Book
	cfg := config(server(t).URL)
	cfg.Telemetry.Logger = log.Logger()
	b := connect(t, cfg)
	r := subscribe(t, b, billing("closed"))
	require.NoError(t, b.Publish(patient(t), []event.Envelope{envelope("closed", "a", 1), envelope("closed", "a", 2)}))
	first, second := receive(t, r), receive(t, r)
	require.NoError(t, r.Ack(patient(t), first))
	require.NoError(t, first.Receipt().(*receipt).delivery.Ack(false)) // a second time, which is a fault
	require.Equal(t, second.ID, receive(t, r).ID, "it comes again, over another channel")
	require.Contains(t, log.String(), "unknown delivery tag")
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
	insist(t, b, msgs) // until all queues are there again
	for len(seen) < len(msgs) {
		m, err := r.Receive(patient(t))
		if err != nil {
			state, unknown := b.ReadSubscription(t.Context(), s.Topic, s.Name)
			require.NoError(t, err, "%d of %d messages have come; the broker has %+v, %v; the receiver %+v",
				len(seen), len(msgs), state, unknown, r.(*receiver).Connection())
		}
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

// The doctor and the gauges of another process do not know with how many queues a subscription was made.
func TestStateOfASubscriptionWithMoreQueues(t *testing.T) {
	t.Parallel()
	cfg := config(server(t).URL)
	cfg.Queues, cfg.Subscriptions = 16, []messaging.Subscription{billing("many")}
	b := connect(t, cfg)
	var msgs []event.Envelope
	for n := range 60 {
		msgs = append(msgs, envelope("many", fmt.Sprintf("key-%d", n), 1))
	}
	require.NoError(t, b.Publish(patient(t), msgs))
	other := connect(t, config(server(t).URL))
	await.True(t, func() bool {
		state, err := other.ReadSubscription(patient(t), "many", "billing")
		require.NoError(t, err)
		return state.Messages == 60
	}, "all messages are counted")
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
	var all []*messaging.Message
	for range 4 { // all places
		all = append(all, receive(t, r))
	}
	for _, m := range all { // none of them after it has come again, because the next renewal waits for a minute
		r.Leave(m)
	}
	seen := map[int64]bool{}
	for len(seen) < 6 {
		m := receive(t, r)
		seen[m.Sequence] = true
		require.NoError(t, r.Ack(patient(t), m))
	}
}

// A caller without a deadline of its own is not left waiting for a connection that nobody opens any more.
func TestWaitsEndWithTheLink(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := newLink("link", &dialer{addresses: []string{"amqp://127.0.0.1:1"}, timeout: time.Second})
	require.Nil(t, l.keep(ctx, nil))
	_, err := l.wait(t.Context())
	require.ErrorContains(t, err, "has closed the connection")
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

// The last of the queues is missing, when the first ones have delivered already. Kept, these messages would come before the same ones of the next
// attachment, and later ones before earlier ones.
func TestFailedAttachmentLeavesNothing(t *testing.T) {
	t.Parallel()
	s := billing("halved")
	b := declared(t, s)
	var msgs []event.Envelope
	for n := range 40 {
		msgs = append(msgs, envelope("halved", fmt.Sprintf("key-%d", n), 1))
	}
	require.NoError(t, b.Publish(patient(t), msgs))
	operator(t, func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete("oncebox:halved:billing:7", false, false, false)
		return err
	})
	at, err := b.consumer.wait(patient(t))
	require.NoError(t, err)
	r := newReceiver(b, s)
	_, err = r.attach(patient(t), at)
	require.ErrorContains(t, err, "oncebox:halved:billing:7")
	require.Empty(t, r.arrived)
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
