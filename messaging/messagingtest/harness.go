package messagingtest

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/oncebox/oncebox/messaging"
)

// Broker is the set of methods that every adapter has.
type Broker interface {
	messaging.Publisher
	Subscribe(ctx context.Context, s messaging.Subscription) (messaging.Receiver, error)
	Close() error
}

// Harness describes an adapter to the suite.
type Harness struct {
	// Open returns a connected broker for one test, which no other test uses. The suite closes it. Tests run in parallel. Required.
	Open func(t *testing.T) Broker
	// Cut breaks the connections of a broker that Open returned, as a failing network does, and lets it connect again at once. Default: nil, for an
	// adapter without connections; the case "lost connection" is not run then.
	Cut func(t *testing.T, b Broker)
	// Crash disconnects a broker that Open returned from its server without closing anything, as if its process had died. It returns the
	// broker of the restarted process, which uses the same topics. The suite closes the new broker, and leaves b alone. Default: nil,
	// then receivers are closed in place of a crash.
	Crash func(t *testing.T, b Broker) Broker
	// Kill ends the server of a broker that Open returned, as a crash does, and returns a function that starts it again on its data and waits until it
	// answers. Only [RunKilled] uses it. Default: nil.
	Kill func(t *testing.T, b Broker) (restart func())
	// Topic returns a topic that no test has used. It is called before the broker publishes to the topic, so it may create it. Without Forgets the
	// topic must keep messages that no subscription has seen yet. Default: a random name.
	Topic func(t *testing.T) string
	// MaxMessageBytes is the size in bytes above which the adapter refuses a message for good. Default: 5 MiB; -1: there is no limit.
	MaxMessageBytes int
	// Types lists the types of subscription that the adapter supports. It refuses others with [messaging.ErrNoSuchType]. Default: all three.
	Types []messaging.SubscriptionType
	// Declares is true if the broker is a [messaging.Declarer]. Default: false, and the case "declared ahead" is not run.
	Declares bool
	// Forgets is true if the broker keeps a message only for the subscriptions that exist when it is published. The adapter then must be a
	// [messaging.Declarer], and must report a message that no subscription gets as a [*messaging.TopicError]. Default: false, a new subscription
	// begins at the earliest message.
	Forgets bool
	// Keeps is true if a receiver keeps the messages that it has delivered when its connection is lost: they can be settled or given back as before, and come
	// again by themselves only to the next consumer. Default: false, the broker delivers them again after a lost connection.
	Keeps bool
	// Owns is true if the adapter stores Subscription.Source and refuses another one. Default: false, and the case "another service" is not run.
	Owns bool
	// Counts is true if the broker knows whether anybody has ever published to a topic, and the adapter is a [diagnosis.UseReader]. Default: false, and an
	// adapter that is one fails the case "topic in use".
	Counts bool
	// Patience is how long a test may take. After that its context ends, and every waiting call has to return. Default: 2m, for busy machines.
	Patience time.Duration
}

// Run runs the suite against an adapter, each case as a parallel subtest.
func Run(t *testing.T, h Harness) {
	t.Helper()
	h = h.withDefaults()
	for _, c := range h.cases() {
		t.Run(c.name(), func(t *testing.T) {
			t.Parallel()
			c.run(h.open(t, t, c.kind))
		})
	}
}

func (h Harness) withDefaults() Harness {
	if h.Topic == nil {
		h.Topic = func(*testing.T) string { return "conformance-" + strings.ToLower(rand.Text()[:12]) }
	}
	if h.MaxMessageBytes == 0 {
		h.MaxMessageBytes = 5 << 20
	}
	if h.Types == nil {
		h.Types = []messaging.SubscriptionType{messaging.Failover, messaging.KeyShared, messaging.Shared}
	}
	if h.Patience == 0 {
		h.Patience = 2 * time.Minute
	}
	return h
}
