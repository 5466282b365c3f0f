package messaging

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/messaging/count"
)

// Declarer is a broker that can make topics and durable subscriptions ahead of their first consumer. Without it a message
// that is published before its first consumer has come is kept only if the broker keeps messages that have no subscription.
type Declarer interface {
	// Declare makes the topics, and the subscriptions with their topics, if they do not exist. Existing ones are not changed. It may be
	// called again, and by many processes at once. [ErrBrokerDown] means that the broker cannot be reached and the caller should try again;
	// any other error lasts until its cause is mended.
	Declare(ctx context.Context, topics []string, subscriptions []Subscription) error
}

// Naming is a broker with stricter rules for names than [event.ValidateTopic], or without some types of subscription. Oncebox calls it when an event
// is recorded and when a consumer is made. So a name that the broker would refuse for good is an error there, and not a dead letter later. The methods
// run for each event, so they should only look at the name. The errors about names match [event.ErrInvalid], those about types [ErrNoSuchType].
//
// [event.ValidateTopic]: https://pkg.go.dev/github.com/oncebox/oncebox/event#ValidateTopic
// [event.ErrInvalid]: https://pkg.go.dev/github.com/oncebox/oncebox/event#ErrInvalid
type Naming interface {
	// ValidateTopic checks the name of a topic.
	ValidateTopic(name string) error
	// ValidateSubscription checks the name of a subscription, the name of its topic, and its type.
	ValidateSubscription(s Subscription) error
}

// Titled is a broker that knows what it is called, so that operators read the name.
type Titled interface {
	// Title returns the name of the broker's kind, such as Pulsar.
	Title() string
}

// RetentionReader is a broker that knows how long it may deliver a message again. [oncebox.App] warns at its start if that is longer than
// the inbox remembers.
//
// [oncebox.App]: https://pkg.go.dev/github.com/oncebox/oncebox#App
type RetentionReader interface {
	// Retention returns how long a topic keeps messages. 0 means that there is no policy, -1 that the topic keeps them for ever. The error is
	// errors.ErrUnsupported if the broker cannot report it.
	Retention(ctx context.Context, topic string) (time.Duration, error)
}

// SubscriptionReader is a broker that knows how many messages wait for a subscription, whichever process consumes it.
type SubscriptionReader interface {
	// ReadSubscription reads the state of a subscription. An error means that the broker did not answer.
	ReadSubscription(ctx context.Context, topic, name string) (SubscriptionState, error)
}

// SubscriptionState is the answer of a broker about a subscription.
type SubscriptionState struct {
	// Missing says that there is no such subscription: the topic was deleted, or somebody unsubscribed.
	Missing bool
	// Messages is the number of unsettled messages, and Precision how far to trust it: a broker that stores batches may count these.
	Messages  int64
	Precision count.Precision
	// Oldest is when the oldest unsettled message was published, by the clock of its publisher. Zero: none waits, or the broker does not report it.
	Oldest time.Time
	// Settled is a number that changes whenever any consumer settles a message. Only changes mean something, not the value.
	Settled int64
	// Consumers is the number of connected consumers.
	Consumers int
	// Unattended is the number of partitions that have messages and no consumer.
	Unattended int
}
