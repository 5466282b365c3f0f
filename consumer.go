package oncebox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/messaging"
)

// consumer is one call of [App.Consume].
type consumer struct {
	subscription messaging.Subscription
	handler      messaging.Handler
	config       messaging.ConsumerConfig
	current      atomic.Pointer[messaging.Consumer] // while it is subscribed
}

// ConsumeOption changes one consumer.
type ConsumeOption func(*consumer)

// WithSubscriptionType says how the instances of the consumer share the messages. Default: messaging.Failover.
func WithSubscriptionType(t messaging.SubscriptionType) ConsumeOption {
	return func(c *consumer) { c.subscription.Type = t }
}

// WithConcurrency sets how many messages, of different keys, are handled at once. Default: that of Config.Consumer.
func WithConcurrency(n int) ConsumeOption { return func(c *consumer) { c.config.Concurrency = n } }

// WithInstance names this process among the instances of the consumer, stable over restarts, so that a restart moves as
// little as possible. Default: chosen by the broker's adapter.
func WithInstance(name string) ConsumeOption {
	return func(c *consumer) { c.subscription.Consumer = name }
}

// Consume has h handle the messages of a topic, each once per consumer: the name is that of the subscription and of the
// deduplication, stable for ever. Call it before [App.Run], in every process of the service: the processes that only
// publish make sure of the subscription too. It panics when called twice for one topic and consumer.
func (a *App) Consume(topic, name string, h messaging.Handler, opts ...ConsumeOption) {
	c := &consumer{
		subscription: messaging.Subscription{Topic: topic, Name: name, Queue: a.cfg.Consumer.Queue},
		handler:      a.Inbox.Wrap(name, h),
		config:       a.cfg.Consumer,
	}
	c.config.Name = name
	for _, opt := range opts {
		opt(c)
	}
	c.config.Unordered = c.subscription.Type == messaging.Shared
	if err := errors.Join(c.subscription.Validate(), c.config.Validate()); err != nil {
		panic(fmt.Sprintf("oncebox: Consume(%q, %q): %v", topic, name, err))
	}
	for _, other := range a.consumers {
		if other.subscription.Topic == topic && other.subscription.Name == name {
			panic(fmt.Sprintf("oncebox: Consume(%q, %q): there is such a consumer already", topic, name))
		}
	}
	a.consumers = append(a.consumers, c)
}

// deliver gives a message to all consumers of its topic in this process. A consumer that has handled it already, because
// another one failed and the message came again, sees a duplicate in its inbox.
func (a *App) deliver(ctx context.Context, m *messaging.Message) error {
	var errs []error
	for _, c := range a.consumers {
		if c.subscription.Topic == m.Topic {
			errs = append(errs, c.handler.Handle(ctx, m))
		}
	}
	return errors.Join(errs...)
}

// declarer is a broker that can make topics and durable subscriptions ahead of their first consumer.
type declarer interface {
	Declare(ctx context.Context, topics []string, subscriptions []messaging.Subscription) error
}

// declare makes sure of the subscriptions: what is published to a topic without one may be deleted at any moment.
func (a *App) declare(ctx context.Context) error {
	d, ok := a.broker.(declarer)
	if !ok || len(a.consumers) == 0 {
		return nil
	}
	subscriptions := make([]messaging.Subscription, len(a.consumers))
	for i, c := range a.consumers {
		subscriptions[i] = c.subscription
	}
	return d.Declare(ctx, nil, subscriptions)
}

// consume runs one consumer until ctx is done. A receiver that dies, because its topic was deleted or its permission
// revoked, is subscribed anew.
func (a *App) consume(ctx context.Context, c *consumer) error {
	for failures := 1; ctx.Err() == nil; failures++ {
		started := time.Now()
		err := a.receive(ctx, c)
		if ctx.Err() != nil {
			break
		}
		if time.Since(started) > time.Minute {
			failures = 1
		}
		pause := backoff.Jitter(backoff.Exponential(failures, 200*time.Millisecond, 30*time.Second))
		a.log.WarnContext(ctx, "oncebox: a consumer stopped, subscribing again",
			"topic", c.subscription.Topic, "consumer", c.subscription.Name, "pause", pause, "error", err)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil //nolint:nilerr // told to stop: what the last consumer ended with is no matter then
}

func (a *App) receive(ctx context.Context, c *consumer) error {
	receiver, err := a.broker.Subscribe(ctx, c.subscription)
	if err != nil {
		return fmt.Errorf("oncebox: subscribe %s to %s: %w", c.subscription.Name, c.subscription.Topic, err)
	}
	running := messaging.NewConsumer(receiver, c.handler, &c.config)
	c.current.Store(running)
	defer c.current.Store(nil)
	return running.Run(ctx)
}
