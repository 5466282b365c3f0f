package messagingtest

import (
	"errors"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// testMissingType subscribes with each type that the adapter does not have. It must say so, and not use another type.
func testMissingType(s *session) {
	t := s.t
	for _, kind := range []messaging.SubscriptionType{messaging.Failover, messaging.KeyShared, messaging.Shared} {
		if slices.Contains(s.h.Types, kind) {
			continue
		}
		subscription := messaging.Subscription{Topic: s.topic, Name: "missing", Type: kind}
		_, err := s.broker.Subscribe(s.ctx, subscription)
		require.ErrorIs(t, err, messaging.ErrNoSuchType, "%s is not in Harness.Types", kind)
		require.True(t, messaging.IsPermanent(err), "another try cannot mend it: %v", err)
		if naming, ok := s.broker.(messaging.Naming); ok {
			require.ErrorIs(t, naming.ValidateSubscription(subscription), messaging.ErrNoSuchType, "%s", kind)
		}
	}
}

// testNames uses topics whose names differ in one character, or have characters that brokers use for themselves. Each is a topic of its own, or
// is refused for good. A broker may refuse a topic because of another one with a similar name: then nothing can be published to it, either.
func testNames(s *session) {
	t := s.t
	naming, _ := s.broker.(messaging.Naming)
	type topic struct {
		name string
		sent event.Envelope
		r    messaging.Receiver
	}
	var topics []topic
	for n, end := range []string{
		"", "-a", "-A", ".a", "_a", "_x2E_a", " a", "*a", ">a", "#a", ":a", "$a", "?a", ",a", ";a", "=a", "&a", `\a`, `"a`,
		"é", "è", "🙂", "|a", ".*", ".>", ".#",
		"-" + strings.Repeat("a", 100),
	} {
		name := s.topic + end
		sent := s.message("key", n)
		sent.Topic = name
		if naming != nil && naming.ValidateTopic(name) != nil {
			err := s.attempt(s.ctx, []event.Envelope{sent})
			require.True(t, messaging.IsPermanent(err), "topic %q is not valid, and not refused for good: %v", name, err)
			continue
		}
		r, err := s.broker.Subscribe(s.ctx, messaging.Subscription{Topic: name, Name: "names"})
		if isTopicError(err) {
			err := s.attempt(s.ctx, []event.Envelope{sent})
			require.True(t, isTopicError(err), "nobody can subscribe to topic %q, and it takes messages: %v", name, err)
			continue
		}
		require.NoError(t, err, "subscribe to topic %q", name)
		t.Cleanup(func() { s.leave(r) })
		topics = append(topics, topic{name, sent, r})
	}
	require.Greater(t, len(topics), 5, "most names are refused")
	for _, to := range topics {
		require.NoError(t, s.attempt(s.ctx, []event.Envelope{to.sent}), "publish to topic %q", to.name)
	}
	for _, from := range topics {
		got := await(s, "Receive", receiveLater(s.ctx, from.r))
		require.NoError(t, got.err, "receive from topic %q", from.name)
		require.Equal(t, from.name, got.msg.Topic)
		require.Equal(t, from.sent.ID, got.msg.ID, "topic %q got the message of another topic", from.name)
		require.NoError(t, from.r.Ack(s.ctx, got.msg))
	}
}

func isTopicError(err error) bool {
	_, ok := errors.AsType[*messaging.TopicError](err)
	return ok
}
