package messagingtest

import (
	"errors"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/diagnosis"
)

// testDeclared declares a subscription before its topic has a message, and again after it has settled some: a second declaration must not
// move its position.
func testDeclared(s *session) {
	t := s.t
	d, ok := s.broker.(messaging.Declarer)
	require.True(t, ok, "the broker is no messaging.Declarer")
	declare := func(sub messaging.Subscription) error {
		return within(s, "Declare", func() error { return d.Declare(s.ctx, nil, []messaging.Subscription{sub}) })
	}
	ahead := messaging.Subscription{Topic: s.topic, Name: "ahead"}
	require.NoError(t, declare(ahead), "declare")
	sent := s.series(5, 2)
	s.publish(sent...)
	require.NoError(t, declare(ahead), "declare what exists")
	r := s.join("ahead", "")
	s.receiveThese(r, sent, nil)
	s.leave(r)
	require.NoError(t, declare(ahead), "declare what exists")
	more := s.message("key-0", 3)
	s.publish(more)
	s.receiveThese(s.subscribe("ahead", ""), append(sent[:0:0], more), sent) // an acknowledgement may be lost, so settled messages may come again
	require.Error(t, declare(messaging.Subscription{Topic: s.topic}), "a subscription that cannot be is declared")
}

// declareIfForgetful makes subscriptions ahead of their first message, if the broker keeps messages for nobody else.
func (s *session) declareIfForgetful(names ...string) {
	s.t.Helper()
	if !s.h.Forgets {
		return
	}
	d, ok := s.broker.(messaging.Declarer)
	require.True(s.t, ok, "the broker is no messaging.Declarer")
	var subscriptions []messaging.Subscription
	for _, name := range names {
		subscriptions = append(subscriptions, messaging.Subscription{Topic: s.topic, Name: name, Type: s.kind})
	}
	require.NoError(s.t, within(s, "Declare", func() error { return d.Declare(s.ctx, nil, subscriptions) }), "declare")
}

// testUnroutable publishes to a topic without a subscription. The broker throws the message away, so it must not be confirmed.
func testUnroutable(s *session) {
	t := s.t
	err := s.attempt(s.ctx, []event.Envelope{s.message("a", 1), s.message("a", 2)})
	require.Error(t, err, "a message that nobody gets is confirmed")
	found, ok := errors.AsType[*messaging.TopicError](err)
	require.True(t, ok, "the error is no messaging.TopicError: %v", err)
	require.Equal(t, s.topic, found.Topic)
	require.False(t, messaging.IsPermanent(err), "the message is not at fault: %v", err)
	s.declareIfForgetful("ahead")
	sent := s.series(2, 1)
	s.publish(sent...)
	s.receiveThese(s.subscribe("ahead", ""), sent, nil)
}

// testAnotherService lets a second service subscribe with the name of the first service's subscription. It must be refused.
func testAnotherService(s *session) {
	t := s.t
	theirs := messaging.Subscription{Topic: s.topic, Name: "billing"}
	join := func(source string) error {
		return within(s, "Subscribe", func() error {
			theirs.Source = source
			r, err := s.broker.Subscribe(s.ctx, theirs)
			if err == nil {
				t.Cleanup(func() { s.leave(r) })
			}
			return err
		})
	}
	require.NoError(t, join(""), "no service is named")
	require.NoError(t, join("shop"), "a subscription without a service gets one")
	require.NoError(t, join("shop"), "another deployment of the same service")
	err := join("bank")
	require.Error(t, err, "another service is let in")
	found, ok := errors.AsType[*messaging.SourceError](err)
	require.True(t, ok, "the error is no messaging.SourceError: %v", err)
	require.Equal(t, []string{theirs.Name, "shop", "bank"}, []string{found.Subscription, found.Owner, found.Source})
	require.True(t, messaging.IsPermanent(err), "the error is not permanent: %v", err)
	require.NoError(t, join(""), "no service is named")
}

// testRefusedDeclaration declares three subscriptions, and the one in the middle belongs to another service. The declaration must be refused as a whole: a
// third service declares the other two.
func testRefusedDeclaration(s *session) {
	t := s.t
	d, ok := s.broker.(messaging.Declarer)
	require.True(t, ok, "the broker is no messaging.Declarer")
	declare := func(source string, topics ...string) error {
		var list []messaging.Subscription
		for _, topic := range topics {
			list = append(list, messaging.Subscription{Topic: topic, Name: "billing", Source: source})
		}
		return within(s, "Declare", func() error { return d.Declare(s.ctx, nil, list) })
	}
	first, taken, last := s.h.Topic(s.test), s.topic, s.h.Topic(s.test)
	require.NoError(t, declare("shop", taken), "declare")
	err := declare("mailer", first, taken, last)
	require.Error(t, err, "another service is let in")
	found, ok := errors.AsType[*messaging.SourceError](err)
	require.True(t, ok, "the error is no messaging.SourceError: %v", err)
	require.Equal(t, []string{taken, "shop", "mailer"}, []string{found.Topic, found.Owner, found.Source})
	require.True(t, messaging.IsPermanent(err), "the error is not permanent: %v", err)
	require.NoError(t, declare("bank", first, last), "a declaration that was refused has left a subscription behind")
	require.NoError(t, declare("shop", taken), "declare what is its own")
}

// testUse publishes the first message of a topic. The topic is unused until then, also with a subscription, and in use afterwards, also when the message
// is settled.
func testUse(s *session) {
	t := s.t
	b, counts := s.broker.(diagnosis.UseReader)
	require.Equal(t, s.h.Counts, counts, "Harness.Counts, and whether the adapter is a diagnosis.UseReader")
	if !counts {
		return
	}
	unused := func() bool {
		type answer struct {
			unused bool
			err    error
		}
		got := within(s, "Unused", func() answer {
			is, err := b.Unused(s.ctx, s.topic)
			return answer{is, err}
		})
		require.NoError(t, got.err, "read the use of the topic")
		return got.unused
	}
	require.True(t, unused(), "a topic is in use before its first message")
	r := s.subscribe("billing", "")
	require.True(t, unused(), "a topic is in use before its first message, and has a subscription")
	sent := s.message("a", 1)
	s.publish(sent)
	require.False(t, unused(), "a topic is unused after its first message")
	s.receiveThese(r, []event.Envelope{sent}, nil)
	require.False(t, unused(), "a topic is unused after its only message is settled")
}
