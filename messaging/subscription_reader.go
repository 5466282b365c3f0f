package messaging

import "context"

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
