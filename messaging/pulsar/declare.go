package pulsar

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/topics"
)

var (
	_ messaging.Naming             = (*Broker)(nil)
	_ messaging.SubscriptionReader = (*Broker)(nil)
)

// ValidateTopic checks the name of a topic: event.ValidateTopic accepts it, and it has neither "+", which the admin API cannot express, nor
// "-partition-", which marks the partitions of a topic. It is for a process that writes events and has no [Broker]:
// uow.Config.ValidateTopic, outbox.Config.ValidateTopic.
func ValidateTopic(name string) error { return topics.ValidateTopic(name) }

// ValidateTopic implements [messaging.Naming], see [ValidateTopic].
func (*Broker) ValidateTopic(name string) error { return topics.ValidateTopic(name) }

// ValidateSubscription implements [messaging.Naming].
func (*Broker) ValidateSubscription(s messaging.Subscription) error {
	return topics.ValidateSubscription(s)
}

// Declare makes topics, and subscriptions with their topics, if they do not exist; existing ones are not changed. It looks at the owners of
// all subscriptions first: one of another service is an error before anything is made. It may be called again, and by many processes at once.
//
// While the broker is down it tries again, until ctx is done or Config.ConnectTimeout has passed; then the error is a
// [messaging.ErrBrokerDown].
//
// It uses the admin API. If that cannot be reached it says so in the log, and makes the subscriptions by subscribing;
// topics are then made by the broker, with one partition or as it is configured.
func (b *Broker) Declare(ctx context.Context, names []string, subscriptions []messaging.Subscription) error {
	var errs []error
	for _, s := range subscriptions {
		errs = append(errs, topics.ValidateSubscription(s))
	}
	for _, name := range names {
		if err := topics.ValidateTopic(name); err != nil {
			errs = append(errs, fmt.Errorf("topic %q: %w", name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("pulsar: declare: %w", err)
	}
	ctx, leave, err := b.calls.Begin(ctx, b.open, "pulsar: declare", b.cfg.ConnectTimeout)
	if err != nil {
		return err
	}
	defer leave()
	for _, s := range subscriptions {
		b.heed(s)
	}
	if len(names)+len(subscriptions) == 0 {
		return nil
	}
	if err := b.start.Wait(ctx, "declare"); err != nil {
		return err
	}
	return b.declare(ctx, names, subscriptions)
}

// declare is Declare when the names are known to be valid and the broker has been reached once.
func (b *Broker) declare(ctx context.Context, names []string, subscriptions []messaging.Subscription) error {
	for _, s := range subscriptions {
		b.heed(s) // subscriptions of Config pass only here
	}
	return b.keeper.Declare(ctx, names, subscriptions)
}

// heed turns batching off for a topic if one of its subscriptions does not allow batches.
func (b *Broker) heed(s messaging.Subscription) {
	if s.Type != messaging.KeyShared {
		return
	}
	if t, err := b.topic(s.Topic); err == nil {
		t.unbatched.Store(true)
	}
}

// Retention returns how long a topic may deliver a message again: the longer of two times, how long the broker keeps acknowledged messages
// (a subscription that is reset gets them once more), and how long it keeps others. 0: neither has a policy; -1: for ever.
//
// It asks the admin API, and returns errors.ErrUnsupported where there is none.
func (b *Broker) Retention(ctx context.Context, topic string) (time.Duration, error) {
	// Only the topic is checked: the name of the subscription is not used.
	if err := (messaging.Subscription{Topic: topic, Name: "none"}).Validate(); err != nil {
		return 0, err
	}
	if err := b.start.Wait(ctx, "retention"); err != nil {
		return 0, err
	}
	return b.keeper.Retention(ctx, topic)
}

// Unused implements [diagnosis.UseReader] with the admin API, and returns errors.ErrUnsupported where there is none. Pulsar forgets a message that all
// subscriptions have settled, and remembers that a subscription has settled some. So a topic that was in use before its present subscriptions counts as
// unused.
func (b *Broker) Unused(ctx context.Context, topic string) (bool, error) {
	if err := event.ValidateTopic(topic); err != nil {
		return false, err
	}
	if err := b.start.Wait(ctx, "read the use of a topic"); err != nil {
		return false, err
	}
	return b.keeper.Unused(ctx, topic)
}

// ReadSubscription implements [messaging.SubscriptionReader] with the admin API. Pulsar counts entries, and a batch of messages is one. So Messages is
// count.Estimated from the sizes of up to 100 entries, spread over all that wait. The standard error is at most 10 % if that takes no more than 100
// entries and a quarter of a second. Messages is count.Exact if no more than 100 entries wait and none is a batch. It is the number of entries, and
// count.AtLeast, if the role of the client may not look at the messages of the subscription, for which Pulsar requires the permission to consume, or if
// ctx ends within a second.
func (b *Broker) ReadSubscription(ctx context.Context, topic, name string) (messaging.SubscriptionState, error) {
	if !b.keeper.HasAdmin(ctx) {
		return messaging.SubscriptionState{}, errNoAdmin
	}
	return b.keeper.Admin.State(ctx, topic, name)
}
