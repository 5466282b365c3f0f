package pulsar

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/topics"
)

var (
	_ messaging.Naming             = (*Broker)(nil)
	_ messaging.SubscriptionReader = (*Broker)(nil)
)

// ValidateTopic checks the name of a topic: it is one by event.ValidateTopic, has no "+", which the admin API cannot say, and no "-partition-",
// by which Pulsar tells partitions. It is for a process that writes events and has no [Broker]: uow.Config.ValidateTopic,
// outbox.Config.ValidateTopic.
func ValidateTopic(name string) error { return topics.ValidateTopic(name) }

// ValidateTopic is that of [messaging.Naming], as [ValidateTopic].
func (*Broker) ValidateTopic(name string) error { return topics.ValidateTopic(name) }

// ValidateSubscription is that of [messaging.Naming].
func (*Broker) ValidateSubscription(s messaging.Subscription) error {
	return topics.ValidateSubscription(s)
}

// Declare makes topics, subscriptions and the topics of those, as far as they do not exist; what exists is used as it
// is. It may be called again, and by many processes at once.
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
	if err := b.enter("declare"); err != nil {
		return err
	}
	defer b.calls.Done()
	for _, s := range subscriptions {
		b.heed(s)
	}
	if len(names)+len(subscriptions) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.ConnectTimeout)
	defer cancel()
	defer context.AfterFunc(b.open, cancel)()
	if err := b.start.wait(ctx, "declare"); err != nil {
		return err
	}
	return b.declare(ctx, names, subscriptions)
}

// declare is Declare when the names are known to be valid and the broker has been reached once.
func (b *Broker) declare(ctx context.Context, names []string, subscriptions []messaging.Subscription) error {
	for _, s := range subscriptions {
		b.heed(s) // those of Config come this way only
	}
	return b.keeper.Declare(ctx, names, subscriptions)
}

// heed ends the batches to a topic if one of its subscriptions does not bear them.
func (b *Broker) heed(s messaging.Subscription) {
	if s.Type == messaging.KeyShared {
		b.topic(s.Topic).unbatched.Store(true)
	}
}

// Retention returns how long a topic may bring a message again: for how long the broker keeps what was acknowledged, which a
// subscription that is reset gets once more, and for how long it keeps what was not. 0: neither has a policy; -1: for ever.
//
// It asks the admin API, and returns errors.ErrUnsupported where there is none.
func (b *Broker) Retention(ctx context.Context, topic string) (time.Duration, error) {
	if err := (messaging.Subscription{Topic: topic, Name: "none"}).Validate(); err != nil {
		return 0, err
	}
	if err := b.start.wait(ctx, "retention"); err != nil {
		return 0, err
	}
	return b.keeper.Retention(ctx, topic)
}

// ReadSubscription implements [messaging.SubscriptionReader] with the admin API. Messages counts entries: a batch is one.
func (b *Broker) ReadSubscription(ctx context.Context, topic, name string) (messaging.SubscriptionState, error) {
	if !b.keeper.HasAdmin(ctx) {
		return messaging.SubscriptionState{}, errNoAdmin
	}
	return b.keeper.Admin.State(ctx, topic, name)
}
