package messaging

import (
	"context"
	"time"
)

// Declarer is a broker that can make topics and durable subscriptions ahead of their first consumer. Without it a message
// that is published before its first consumer has come is kept only if the broker keeps messages that have no subscription.
type Declarer interface {
	// Declare makes the topics, the subscriptions and the topics of those, as far as they do not exist. What exists is used as it is.
	// It may be called again, and by many processes at once. [ErrBrokerDown]: the broker is away, the caller tries again; any
	// other error lasts until its cause is mended.
	Declare(ctx context.Context, topics []string, subscriptions []Subscription) error
}

// Naming is a broker that does not take every name which [event.ValidateTopic] takes. It is asked where an event is recorded and where a
// consumer is made: a name that the broker would refuse for good is an error there, and no dead letter later. It is asked for each
// event, so it only looks at the name. The errors match [event.ErrInvalid].
//
// [event.ValidateTopic]: https://pkg.go.dev/github.com/oncebox/oncebox/event#ValidateTopic
// [event.ErrInvalid]: https://pkg.go.dev/github.com/oncebox/oncebox/event#ErrInvalid
type Naming interface {
	// ValidateTopic checks the name of a topic.
	ValidateTopic(name string) error
	// ValidateSubscription checks the names of a subscription, that of its topic too.
	ValidateSubscription(s Subscription) error
}

// RetentionReader is a broker that knows for how long it may bring a message again. [oncebox.App] warns at its start if that is longer than the
// inbox remembers.
//
// [oncebox.App]: https://pkg.go.dev/github.com/oncebox/oncebox#App
type RetentionReader interface {
	// Retention returns for how long a topic keeps messages; 0: nothing says so, -1: for ever. errors.ErrUnsupported: it cannot be found out.
	Retention(ctx context.Context, topic string) (time.Duration, error)
}

// SubscriptionReader is a broker that knows what waits for a subscription, whoever consumes it.
type SubscriptionReader interface {
	// ReadSubscription asks what waits for a subscription. An error means that the broker did not say.
	ReadSubscription(ctx context.Context, topic, name string) (SubscriptionState, error)
}

// SubscriptionState is what a broker says of a subscription.
type SubscriptionState struct {
	// Missing says that there is no such subscription: the topic was deleted, or somebody unsubscribed.
	Missing bool
	// Messages is how many wait for it and are not settled. A broker that stores messages in batches may count those.
	Messages int64
	// Settled changes with every message that any consumer settles. It means nothing beyond that.
	Settled int64
	// Consumers is how many consumers are connected.
	Consumers int
	// Unattended is how many partitions have messages and no consumer.
	Unattended int
}
