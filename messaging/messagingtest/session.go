package messagingtest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// tester has the methods of [testing.T] that a case needs. The suite's own tests put a recorder in its place, to see a case fail.
type tester interface {
	require.TestingT
	Helper()
	Cleanup(fn func())
	Context() context.Context
}

// session is one test, with a broker and a topic that only it uses. ctx bounds every wait.
type session struct {
	t      tester
	test   *testing.T // the test that is given to the harness's functions
	h      Harness
	broker Broker
	topic  string
	kind   messaging.SubscriptionType
	ctx    context.Context //nolint:containedctx // the test's
	made   int
}

// open starts a case. The harness gets t; failed checks of the case go to by.
func (h Harness) open(t *testing.T, by tester, kind messaging.SubscriptionType) *session {
	t.Helper()
	ctx, cancel := context.WithTimeout(by.Context(), h.Patience)
	by.Cleanup(cancel)
	s := &session{t: by, test: t, h: h, topic: h.Topic(t), kind: kind, ctx: ctx}
	s.broker = h.Open(t)
	by.Cleanup(s.close)
	return s
}

// message returns an envelope for the session's topic. Its sequence is n, and so is the text of its payload.
func (s *session) message(key string, n int) event.Envelope {
	s.made++
	return event.Envelope{
		ID: fmt.Sprintf("01890000-0000-7000-8000-%012x", s.made), Type: "thing.happened", Source: "conformance", SchemaVersion: 1, TenantID: "t1",
		AggregateType: "thing", AggregateID: key, Sequence: int64(n), Topic: s.topic, RoutingKey: key,
		OccurredAt:  time.Date(2024, 2, 29, 23, 59, 59, 123_456_000, time.UTC),
		ContentType: event.ContentTypeJSON, Metadata: event.Metadata{}, Payload: fmt.Appendf(nil, `{"n":%d}`, n),
	}
}

// series returns perKey messages of each key, the keys in turns.
func (s *session) series(keys, perKey int) []event.Envelope {
	var msgs []event.Envelope
	for n := range perKey {
		for k := range keys {
			msgs = append(msgs, s.message(fmt.Sprintf("key-%d", k), n+1))
		}
	}
	return msgs
}

// tooLarge returns a message that is larger than the broker accepts.
func (s *session) tooLarge(key string, n int) event.Envelope {
	m := s.message(key, n)
	m.Payload = make([]byte, s.h.MaxMessageBytes+1)
	return m
}

// attempt calls Publish once and returns its error.
func (s *session) attempt(ctx context.Context, msgs []event.Envelope) error {
	s.t.Helper()
	return within(s, "Publish", func() error { return s.broker.Publish(ctx, msgs) })
}

func (s *session) publish(msgs ...event.Envelope) {
	s.t.Helper()
	require.NoError(s.t, s.attempt(s.ctx, msgs), "publish")
}

// join joins a subscription of the type that the case is about.
func (s *session) join(name, consumer string) messaging.Receiver {
	s.t.Helper()
	type joined struct {
		r   messaging.Receiver
		err error
	}
	j := within(s, "Subscribe", func() joined {
		r, err := s.broker.Subscribe(s.ctx, messaging.Subscription{Topic: s.topic, Name: name, Type: s.kind, Consumer: consumer})
		return joined{r, err}
	})
	require.NoError(s.t, j.err, "subscribe %q", name)
	return j.r
}

// subscribe joins a subscription, and leaves it when the test ends.
func (s *session) subscribe(name, consumer string) messaging.Receiver {
	s.t.Helper()
	r := s.join(name, consumer)
	s.t.Cleanup(func() { s.leave(r) })
	return r
}

func (s *session) leave(r messaging.Receiver) {
	s.t.Helper()
	require.NoError(s.t, within(s, "Close of a receiver", r.Close), "close a receiver")
}

func (s *session) receive(r messaging.Receiver) *messaging.Message {
	s.t.Helper()
	got := await(s, "Receive", receiveLater(s.ctx, r))
	require.NoError(s.t, got.err, "receive")
	require.NotNil(s.t, got.msg, "neither a message nor an error was received")
	require.Equal(s.t, s.topic, got.msg.Topic)
	require.GreaterOrEqual(s.t, got.msg.Attempt, 1, "Attempt counts from 1")
	return got.msg
}

func (s *session) ack(r messaging.Receiver, msgs ...*messaging.Message) {
	s.t.Helper()
	for _, m := range msgs {
		require.NoError(s.t, r.Ack(s.ctx, m), "ack")
	}
}

// receiveDistinct receives until n different messages have come, and returns the first copy of each.
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

// receiveThese receives until all messages of must have come, and settles everything. Messages of may can come too, any other message fails the test.
// It returns the first copies in the order of their arrival.
func (s *session) receiveThese(r messaging.Receiver, must, may []event.Envelope) []*messaging.Message {
	s.t.Helper()
	missing, expected := map[string]bool{}, map[string]bool{}
	for _, m := range must {
		missing[m.ID], expected[m.ID] = true, true
	}
	for _, m := range may {
		expected[m.ID] = true
	}
	seen := map[string]bool{}
	var first []*messaging.Message
	for len(missing) > 0 {
		m := s.receive(r)
		require.True(s.t, expected[m.ID], "key %q, number %d: settled, or never published, and received", m.RoutingKey, m.Sequence)
		delete(missing, m.ID)
		if !seen[m.ID] {
			seen[m.ID] = true
			first = append(first, m)
		}
		s.ack(r, m)
	}
	return first
}

// requireSame checks that both lists have the same ids, in any order.
func (s *session) requireSame(sent []event.Envelope, got []*messaging.Message) {
	s.t.Helper()
	want, have := make([]string, len(sent)), make([]string, len(got))
	for i := range sent {
		want[i] = sent[i].ID
	}
	for i := range got {
		have[i] = got[i].ID
	}
	require.ElementsMatch(s.t, want, have, "not the messages that were sent")
}

// requireOrder checks that the sequences of each key are 1, 2, 3 and so on.
func requireOrder(t tester, msgs []*messaging.Message) {
	t.Helper()
	last := map[string]int64{}
	for _, m := range msgs {
		require.Equal(t, last[m.RoutingKey]+1, m.Sequence, "key %q is out of order", m.RoutingKey)
		last[m.RoutingKey] = m.Sequence
	}
}

type received struct {
	msg *messaging.Message
	err error
}

// receiveLater calls Receive in a goroutine and returns the channel for its result.
func receiveLater(ctx context.Context, r messaging.Receiver) <-chan received {
	got := make(chan received, 1)
	go func() {
		m, err := r.Receive(ctx)
		got <- received{m, err}
	}()
	return got
}

// within returns the result of call, and fails the test if it takes too long.
func within[T any](s *session, what string, call func() T) T {
	s.t.Helper()
	done := make(chan T, 1)
	go func() { done <- call() }()
	return await(s, what, done)
}

// await returns the value from done. A call that respects the context returns when the test's time is over. A call that does not is given the same
// time once more, and then fails the test.
func await[T any](s *session, what string, done <-chan T) (v T) {
	s.t.Helper()
	select {
	case v = <-done:
		return v
	case <-s.ctx.Done():
	}
	select {
	case v = <-done:
	case <-time.After(s.h.Patience):
		require.FailNow(s.t, what+" does not end")
	}
	return v
}

// awaitAll waits for the goroutines of a group, with the same limit.
func (s *session) awaitAll(what string, group *sync.WaitGroup) {
	s.t.Helper()
	within(s, what, func() struct{} {
		group.Wait()
		return struct{}{}
	})
}
