package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/messaging"
)

// Subscribe joins a subscription. It makes the subscription if it does not exist, as [Broker.Declare] does. While the broker is down it tries again,
// until ctx is done or Config.ConnectTimeout has passed; then the error is a [messaging.ErrBrokerDown]. After later outages the receiver connects again
// by itself.
func (b *Broker) Subscribe(ctx context.Context, s messaging.Subscription) (messaging.Receiver, error) {
	if err := b.ValidateSubscription(s); err != nil {
		return nil, fmt.Errorf("rabbitmq: subscribe: %w", err)
	}
	ctx, leave, err := b.enter(ctx, "subscribe", b.cfg.ConnectTimeout)
	if err != nil {
		return nil, err
	}
	defer leave()

	call := fmt.Sprintf("subscribe %q of topic %q", s.Name, s.Topic)
	r := newReceiver(b, s)
	var first *attachment
	err = b.insist(ctx, call, func(ctx context.Context, at *session) (err error) {
		if err = b.topology.declare(ctx, at, s); err == nil {
			first, err = r.attach(ctx, at)
		}
		return err
	})
	if err != nil {
		return nil, unsubscribed(s, err)
	}
	b.mu.Lock()
	b.declared[subscriptionKey{s.Topic, s.Name}] = s
	b.receivers[r] = true
	b.mu.Unlock()
	b.background.Go(func() { r.run(first) })
	return r, nil
}

// unsubscribed sorts the error of a failed subscription: for good, about the topic, or about the broker. Each asks the caller for something else.
func unsubscribed(s messaging.Subscription, err error) error {
	switch {
	case errors.Is(err, messaging.ErrBrokerDown): // also if the broker has refused the connection
		return err
	case errors.Is(err, errLayout):
		return messaging.Permanent(fmt.Errorf("rabbitmq: subscription %q of topic %q: %w", s.Name, s.Topic, err))
	case isRefusal(err):
		return fmt.Errorf("rabbitmq: subscription %q: %w", s.Name, &messaging.TopicError{Topic: s.Topic, Err: err})
	case messaging.IsPermanent(err):
		return fmt.Errorf("rabbitmq: subscribe: %w", err)
	default:
		return err
	}
}

// nameOf returns the name of a new consumer at the broker.
func (b *Broker) nameOf(s messaging.Subscription) string {
	if s.Consumer != "" {
		return s.Consumer
	}
	// The number is the same after a restart if the program subscribes in the same order.
	b.mu.Lock()
	defer b.mu.Unlock()
	b.joined++
	return fmt.Sprintf("%s-%d", b.cfg.Name, b.joined)
}
