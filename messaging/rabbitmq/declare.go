package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/messaging"
)

var (
	_ messaging.Publisher          = (*Broker)(nil)
	_ messaging.Declarer           = (*Broker)(nil)
	_ messaging.Naming             = (*Broker)(nil)
	_ messaging.Observed           = (*Broker)(nil)
	_ messaging.SubscriptionReader = (*Broker)(nil)
)

// ValidateTopic checks the name of a topic: event.ValidateTopic accepts it, and it fits into a routing key of AMQP, which has at most 255 bytes. It is
// for a process that writes events and has no [Broker]: uow.Config.ValidateTopic, outbox.Config.ValidateTopic.
func ValidateTopic(name string) error { return names{}.validateTopic(name) }

// ValidateTopic implements [messaging.Naming], see [ValidateTopic].
func (*Broker) ValidateTopic(name string) error { return ValidateTopic(name) }

// ValidateSubscription implements [messaging.Naming].
func (b *Broker) ValidateSubscription(s messaging.Subscription) error {
	return b.topology.names.validateSubscription(s)
}

// Declare makes subscriptions that do not exist, each with an exchange and its queues; with Config.Declare "check" it only checks that they exist. It
// looks at all that exists first: a subscription with other settings, or of another service, is an error before anything is made. It may be called again,
// and by many processes at once. A topic is the routing key of its messages, so there is nothing to make for it.
//
// While the broker is down it tries again, until ctx is done or Config.ConnectTimeout has passed; then the error is a [messaging.ErrBrokerDown]. A
// subscription that exists with other settings is another error, which says what differs.
func (b *Broker) Declare(ctx context.Context, topics []string, subscriptions []messaging.Subscription) error {
	var errs []error
	for _, s := range subscriptions {
		errs = append(errs, b.ValidateSubscription(s))
	}
	for _, topic := range topics {
		if err := ValidateTopic(topic); err != nil {
			errs = append(errs, fmt.Errorf("topic %q: %w", topic, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("rabbitmq: declare: %w", err)
	}
	ctx, leave, err := b.enter(ctx, "declare", b.cfg.ConnectTimeout)
	if err != nil {
		return err
	}
	defer leave()
	for _, s := range subscriptions {
		err := b.insist(ctx, "declare", func(ctx context.Context, at *session) error { return b.topology.inspect(ctx, at, s) })
		if err != nil {
			return unsubscribed(s, err)
		}
	}
	for _, s := range subscriptions {
		err := b.insist(ctx, "declare", func(ctx context.Context, at *session) error { return b.topology.declare(ctx, at, s) })
		if err != nil {
			return unsubscribed(s, err)
		}
		b.mu.Lock()
		b.declared[subscriptionKey{s.Topic, s.Name}] = s
		b.mu.Unlock()
	}
	return nil
}

// insist calls do with the connection of consumers, and again while the connection gets lost. Other errors are those of do.
func (b *Broker) insist(ctx context.Context, call string, do func(ctx context.Context, at *session) error) error {
	for attempt := 1; ; attempt++ {
		at, err := b.wait(ctx, b.consumer, call)
		if err != nil {
			return err
		}
		if err = do(ctx, at); err == nil || lasts(err) {
			return err
		}
		if backoff.Wait(ctx, backoff.Exponential(attempt, firstPause, longestPause)) != nil {
			return b.down(call, err)
		}
	}
}

// ReadSubscription implements [messaging.SubscriptionReader]. Messages counts the messages that wait in the queues, and none that a consumer holds:
// AMQP does not show these.
func (b *Broker) ReadSubscription(ctx context.Context, topic, name string) (messaging.SubscriptionState, error) {
	var state messaging.SubscriptionState
	ctx, leave, err := b.enter(ctx, "read subscription", b.cfg.ConnectTimeout)
	if err != nil {
		return state, err
	}
	defer leave()
	at, err := b.wait(ctx, b.consumer, "read subscription")
	if err != nil {
		return state, err
	}
	b.mu.Lock()
	sub, isDeclared := b.declared[subscriptionKey{topic, name}]
	b.mu.Unlock()
	known := 0
	if isDeclared {
		known = b.topology.layoutOf(sub).queues
	}
	for n := range lanes { // another program may have made it with more queues than this one would
		queue, err := inspect(ctx, at, queueName(b.topology.names.of(topic, name), n))
		switch {
		case isCode(err, amqp.NotFound):
			state.Missing = state.Missing || n == 0
			if n >= known {
				return state, nil
			}
			continue
		case err != nil:
			return state, fmt.Errorf("rabbitmq: state of subscription %q of topic %q: %w", name, topic, err)
		}
		state.Messages += int64(queue.Messages)
		state.Consumers = max(state.Consumers, queue.Consumers)
		if queue.Messages > 0 && queue.Consumers == 0 {
			state.Unattended++
		}
	}
	return state, nil
}

// inspect asks for the messages and consumers of a queue.
func inspect(ctx context.Context, at *session, name string) (amqp.Queue, error) {
	return ask(ctx, at, func(ch *amqp.Channel) (amqp.Queue, error) {
		return ch.QueueDeclarePassive(name, true, false, false, false, nil)
	})
}
