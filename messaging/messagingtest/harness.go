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

// Harness tells the suite about an adapter.
type Harness struct {
	// Open returns a broker of its own for one test, connected. The suite closes it. Tests run in parallel. Required.
	Open func(t *testing.T) Broker
	// Topic returns a topic that no test has used. Called before Open's broker publishes to it, so it may create the
	// topic. A topic must keep messages that no subscription has seen yet. Default: a random name.
	Topic func(t *testing.T) string
	// MaxMessageBytes is the size over which a message is refused for good. Default: 5 MiB; -1: there is no limit.
	MaxMessageBytes int
	// Types are the types of subscription that the adapter has. Default: all three.
	Types []messaging.SubscriptionType
	// Patience is how long the suite waits for a message before the test fails. Default: 30s.
	Patience time.Duration
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
	h = h.withDefaults()
	for name, test := range map[string]func(*session){
		"envelope survives":             testEnvelope,
		"large envelope survives":       testLargeEnvelope,
		"nobody shares memory":          testIsolation,
		"nothing to publish":            testPublishNothing,
		"context is done":               testPublishCancelled,
		"concurrent calls":              testConcurrentPublish,
		"refused message":               testRefused,
		"refused message without key":   testRefusedWithoutKey,
		"bad subscription":              testBadSubscription,
		"late subscription":             testLateSubscription,
		"two subscriptions":             testTwoSubscriptions,
		"receive ends with its context": testReceiveContext,
		"receive ends with close":       testReceiveClose,
		"broker closes":                 testBrokerClose,
		"broker closes while used":      testBrokerCloseWhileUsed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(h.open(t))
		})
	}
	for _, kind := range h.Types {
		for name, test := range map[string]func(*session){
			"unsettled comes again": testUnsettled,
			"takeover":              testTakeover,
			"redeliver":             testRedeliver,
			"pause":                 testPause,
		} {
			t.Run(kind.String()+" "+name, func(t *testing.T) {
				t.Parallel()
				s := h.open(t)
				s.kind = kind
				test(s)
			})
		}
		if kind == messaging.Shared {
			continue
		}
		for name, test := range map[string]func(*session){
			"order per key":                 testOrder,
			"order with two consumers":      testOrderTwoConsumers,
			"redelivered before later ones": testRedeliverOrder,
		} {
			t.Run(kind.String()+" "+name, func(t *testing.T) {
				t.Parallel()
				s := h.open(t)
				s.kind = kind
				test(s)
			})
		}
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
		h.Patience = 30 * time.Second
	}
	return h
}
