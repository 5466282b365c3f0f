package messagingtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// session is one test with a broker and a topic of its own. Everything it waits for is bounded by ctx.
type session struct {
	t      *testing.T
	h      Harness
	broker Broker
	topic  string
	kind   messaging.SubscriptionType
	ctx    context.Context //nolint:containedctx // the test's
	made   int
	only   messaging.Receiver // of exchange
}

func (h Harness) open(t *testing.T) *session {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), h.Patience)
	t.Cleanup(cancel)
	s := &session{t: t, h: h, topic: h.Topic(t), ctx: ctx}
	s.broker = h.Open(t)
	t.Cleanup(func() { require.NoError(t, s.broker.Close(), "close the broker") })
	return s
}

// message makes an envelope of the topic. The n-th of a key has sequence n.
func (s *session) message(key string, n int) event.Envelope {
	s.made++
	return event.Envelope{
		ID: fmt.Sprintf("01890000-0000-7000-8000-%012x", s.made), Type: "thing.happened", Source: "conformance", SchemaVersion: 1, TenantID: "t1",
		AggregateType: "thing", AggregateID: key, Sequence: int64(n), Topic: s.topic, RoutingKey: key,
		OccurredAt:  time.Date(2024, 2, 29, 23, 59, 59, 123_456_000, time.UTC),
		ContentType: event.ContentTypeJSON, Metadata: event.Metadata{}, Payload: fmt.Appendf(nil, `{"n":%d}`, n),
	}
}

// tooLarge makes one that the broker must refuse.
func (s *session) tooLarge(key string, n int) event.Envelope {
	m := s.message(key, n)
	m.Payload = make([]byte, s.h.MaxMessageBytes+1)
	return m
}

func (s *session) publish(msgs ...event.Envelope) {
	s.t.Helper()
	require.NoError(s.t, s.broker.Publish(s.ctx, msgs))
}

// subscribe joins a subscription under the test's type and closes with the test.
func (s *session) subscribe(name, consumer string) messaging.Receiver {
	s.t.Helper()
	r, err := s.broker.Subscribe(s.ctx, messaging.Subscription{Topic: s.topic, Name: name, Type: s.kind, Consumer: consumer})
	require.NoError(s.t, err, "subscribe %q", name)
	s.t.Cleanup(func() { require.NoError(s.t, r.Close(), "close a receiver") })
	return r
}

func (s *session) receive(r messaging.Receiver) *messaging.Message {
	s.t.Helper()
	m, err := r.Receive(s.ctx)
	require.NoError(s.t, err, "receive")
	require.Equal(s.t, s.topic, m.Topic)
	require.GreaterOrEqual(s.t, m.Attempt, 1)
	return m
}

func (s *session) ack(r messaging.Receiver, msgs ...*messaging.Message) {
	s.t.Helper()
	for _, m := range msgs {
		require.NoError(s.t, r.Ack(s.ctx, m), "ack")
	}
}

// receiveDistinct receives until it has seen n different messages, and returns the first copy of each.
func (s *session) receiveDistinct(r messaging.Receiver, n int) []*messaging.Message {
	s.t.Helper()
	seen := map[string]bool{}
	var msgs []*messaging.Message
	for len(msgs) < n {
		m := s.receive(r)
		if !seen[m.ID] {
			seen[m.ID] = true
			msgs = append(msgs, m)
		}
	}
	return msgs
}

// requireSame compares the ids, in any order.
func (s *session) requireSame(sent []event.Envelope, got []*messaging.Message) {
	s.t.Helper()
	want, have := make([]string, len(sent)), make([]string, len(got))
	for i := range sent {
		want[i] = sent[i].ID
	}
	for i := range got {
		have[i] = got[i].ID
	}
	require.ElementsMatch(s.t, want, have)
}

// requireOrder wants the sequences of each key to rise by one from 1.
func requireOrder(t *testing.T, msgs []*messaging.Message) {
	t.Helper()
	last := map[string]int64{}
	for _, m := range msgs {
		require.Equal(t, last[m.RoutingKey]+1, m.Sequence, "key %q is out of order", m.RoutingKey)
		last[m.RoutingKey] = m.Sequence
	}
}
