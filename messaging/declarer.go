package messaging

import "context"

// Declarer is a broker that can make topics and durable subscriptions ahead of their first consumer. Without it a message
// that is published before its first consumer has come is kept only if the broker keeps messages that have no subscription.
type Declarer interface {
	// Declare makes the topics, the subscriptions and the topics of those, as far as they do not exist. What exists is used as it is.
	// It may be called again, and by many processes at once. [ErrBrokerDown]: the broker is away, the caller tries again; any
	// other error lasts until its cause is mended.
	Declare(ctx context.Context, topics []string, subscriptions []Subscription) error
}
