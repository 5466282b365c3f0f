package nats

import (
	"context"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
)

var (
	_ messaging.Declarer           = (*Broker)(nil)
	_ messaging.Naming             = (*Broker)(nil)
	_ messaging.Observed           = (*Broker)(nil)
	_ messaging.SubscriptionReader = (*Broker)(nil)
	_ messaging.RetentionReader    = (*Broker)(nil)
)

// Declare makes the streams of topics, and the consumers of subscriptions with their streams, if they do not exist. With Config.Declare "check" it
// makes nothing, and returns an error for a missing one. It looks at all that exists first: a stream or consumer with other settings, or of another
// service, is an error before anything is made. It may be called again, and by many processes at once.
//
// While the server is away it tries again, until ctx is done or Config.ConnectTimeout has passed; then the error is a [messaging.ErrBrokerDown].
func (b *Broker) Declare(ctx context.Context, topics []string, subscriptions []messaging.Subscription) error {
	if err := b.validate(topics, subscriptions); err != nil {
		return fmt.Errorf("nats: declare: %w", err)
	}
	leave, err := b.calls.Enter("nats: declare")
	if err != nil {
		return err
	}
	defer leave()
	return b.insist(ctx, "declare", func(ctx context.Context) error { return b.declare(ctx, topics, subscriptions) })
}

// Title returns what operators call the broker, see messaging.Titled.
func (*Broker) Title() string { return title }

// validate names the topics and subscriptions that cannot be.
func (b *Broker) validate(topics []string, subscriptions []messaging.Subscription) (err error) {
	for _, topic := range topics {
		if wrong := b.ValidateTopic(topic); wrong != nil {
			err = errors.Join(err, fmt.Errorf("topic %q: %w", topic, wrong))
		}
	}
	for _, s := range subscriptions {
		err = errors.Join(err, b.ValidateSubscription(s))
	}
	return err
}

// insist tries something until it succeeds, the error lasts, or the time is over.
func (b *Broker) insist(ctx context.Context, call string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.ConnectTimeout)
	defer cancel()
	defer context.AfterFunc(b.open, cancel)()
	if err := b.start.Wait(ctx, call); err != nil {
		return err
	}
	return adapters.Insist(ctx, func() error {
		_, err := b.session.Wait(ctx)
		if err == nil {
			err = try(ctx)
		}
		return away(call, err)
	})
}

// declare is Declare when the names are known to be valid and the server has been reached once. It makes nothing if something that exists is refused.
func (b *Broker) declare(ctx context.Context, topics []string, subscriptions []messaging.Subscription) error {
	if err := b.keeper.Inspect(ctx, topics, subscriptions); err != nil {
		return err
	}
	for _, topic := range topics {
		if _, err := b.keeper.Open(ctx, topic); err != nil {
			return err
		}
	}
	for _, s := range subscriptions {
		if _, err := b.keeper.Consumers(ctx, s); err != nil {
			return err
		}
	}
	return nil
}
