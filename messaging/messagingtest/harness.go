package messagingtest

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/oncebox/oncebox/messaging"
)

// Broker is what an adapter offers.
type Broker interface {
	messaging.Publisher
	Subscribe(ctx context.Context, s messaging.Subscription) (messaging.Receiver, error)
	Close() error
}

// Harness describes an adapter to the suite.
type Harness struct {
	// Open returns a broker of its own for one test, connected. The suite closes it. Tests run in parallel. Required.
	Open func(t *testing.T) Broker
	// Cut breaks the connections of a broker that Open returned, as a failing network does, and lets it connect again at
	// once. Default: nil, for an adapter that has none; "lost connection" is not run then.
	Cut func(t *testing.T, b Broker)
	// Crash takes a broker that Open returned away from its server without a goodbye, as if its process had died, and
	// returns what the process has after it was started again: another connection to the same topics. The suite closes
	// that one, and leaves b alone. Default: nil, the receivers are closed in place of a crash.
	Crash func(t *testing.T, b Broker) Broker
	// Topic returns a topic that no test has used. Called before Open's broker publishes to it, so it may create the
	// topic. A topic must keep messages that no subscription has seen yet. Default: a random name.
	Topic func(t *testing.T) string
	// MaxMessageBytes is the size over which a message is refused for good. Default: 5 MiB; -1: there is no limit.
	MaxMessageBytes int
	// Types are the types of subscription that the adapter has. Default: all three.
	Types []messaging.SubscriptionType
	// Declares says that the broker is a [messaging.Declarer]. Default: false, "declared ahead" is not run.
	Declares bool
	// Owns says that the adapter keeps Subscription.Source and refuses another one. Default: false, "another service" is not run.
	Owns bool
	// Patience is how long a test may take. After that whatever waits has to end at once. Default: 2m, for busy machines.
	Patience time.Duration
}

// Run runs the suite.
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
