package oncebox

import (
	"context"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
)

// consumer is one call of [App.Consume].
type consumer struct {
	subscription messaging.Subscription
	handler      messaging.Handler
	config       messaging.ConsumerConfig
	inbox        []inbox.Option
	leased       bool
	loop         *messaging.Loop // nil without a broker
}

// ConsumeOption changes one consumer.
type ConsumeOption func(*consumer)

// WithSubscriptionType says how the instances of the consumer share the messages. Default: messaging.Failover.
func WithSubscriptionType(t messaging.SubscriptionType) ConsumeOption {
	return func(c *consumer) { c.subscription.Type = t }
}

// WithConcurrency sets how many messages, of different keys, are handled at once. Default: that of Config.Consumer.
func WithConcurrency(n int) ConsumeOption { return func(c *consumer) { c.config.Concurrency = n } }

// WithBatch has up to n messages handled in one transaction: those that wait at that moment, of any keys, in their order. A
// batch that fails is handled again one by one, so order and guarantees are the same; it pays where a transaction costs more
// than what the handler does in it. Default: that of Config.Consumer, one.
func WithBatch(n int) ConsumeOption { return func(c *consumer) { c.config.BatchSize = n } }

// WithLease has the handler run under a lease instead of in a transaction, because it calls outside: see
// [inbox.Inbox.WrapLeased], [inbox.Step] and [inbox.Key].
func WithLease() ConsumeOption { return func(c *consumer) { c.leased = true } }

// WithInboxOptions passes options to the inbox that h is wrapped in.
func WithInboxOptions(opts ...inbox.Option) ConsumeOption {
	return func(c *consumer) { c.inbox = append(c.inbox, opts...) }
}

// WithInstance names this process among the instances of the consumer, stable over restarts, so that a restart moves as
// little as possible. Default: chosen by the broker's adapter.
func WithInstance(name string) ConsumeOption {
	return func(c *consumer) { c.subscription.Consumer = name }
}

// Consume has h handle the messages of a topic, each once per consumer: the name is that of the subscription and of the
// deduplication, stable for ever. Call it before [App.Run], in every process of the service: the processes that only
// publish make sure of the subscription too. Without a broker subscriptions are rows of the database; [inbox.Inbox.Forget] removes those of a
// consumer that is gone for good. An [inbox.Projection], of the same name, may be given for h. It panics when called
// twice for one topic and consumer.
func (a *App) Consume(topic, name string, h messaging.Handler, opts ...ConsumeOption) {
	a.consume(topic, name, opts, func(c *consumer, options []inbox.Option) (messaging.Handler, error) {
		p, projected := h.(*inbox.Projection)
		switch {
		case projected && (p.Name() != name || len(c.inbox) > 0 || c.leased):
			return nil, fmt.Errorf("projection %q is consumed under its own name, with the options that it has", p.Name())
		case projected:
			return p, nil
		case c.leased:
			return a.Inbox.WrapLeased(name, h, options...), nil
		default:
			return a.Inbox.Wrap(name, h, options...), nil
		}
	})
}

// defaultBatch is how many messages a bulk writer gets at most.
const defaultBatch = 100

// ConsumeBatch is [App.Consume] for a bulk writer: it gets up to 100 messages at once, or as many as [WithBatch] says, in one
// unit of work.
func (a *App) ConsumeBatch(topic, name string, fn inbox.BatchFunc, opts ...ConsumeOption) {
	opts = append([]ConsumeOption{WithBatch(max(a.cfg.Consumer.BatchSize, defaultBatch))}, opts...)
	a.consume(topic, name, opts, func(c *consumer, options []inbox.Option) (messaging.Handler, error) {
		if c.leased {
			return nil, errors.New("a bulk writer runs in a transaction: it cannot have a lease")
		}
		return a.Inbox.WrapBatch(name, fn, options...), nil
	})
}

func (a *App) consume(topic, name string, opts []ConsumeOption, wrap func(*consumer, []inbox.Option) (messaging.Handler, error)) {
	c := &consumer{
		subscription: messaging.Subscription{Topic: topic, Name: name, Queue: a.cfg.Consumer.Queue},
		config:       a.cfg.Consumer,
	}
	c.config.Name = name
	for _, opt := range opts {
		opt(c)
	}
	c.config.Unordered = c.subscription.Type == messaging.Shared
	if c.subscription.Queue == 0 && c.config.BatchSize > 1 {
		c.subscription.Queue = max(64, 2*c.config.BatchSize) // or there would never be a full batch to take
	}
	err := errors.Join(c.subscription.Validate(), c.config.Validate())
	for _, other := range a.consumers {
		if other.subscription.Topic == topic && other.subscription.Name == name {
			err = errors.Join(err, errors.New("there is such a consumer already"))
		}
	}
	if err == nil {
		options := []inbox.Option{inbox.OfTopic(topic), inbox.AtOnce(c.config.AtOnce())}
		if c.config.Unordered {
			options = append(options, inbox.Unordered())
		}
		c.handler, err = wrap(c, append(options, c.inbox...))
	}
	if err != nil {
		panic(fmt.Sprintf("oncebox: Consume(%q, %q): %v", topic, name, err))
	}
	if a.broker != nil {
		c.loop, _ = messaging.NewLoop(a.broker, c.subscription, c.handler, &c.config) // validated above
	}
	a.consumers = append(a.consumers, c)
}

// deliver gives a message to all consumers of its topic in this process, and stores it for those that only others have: in processes of
// a newer build, or because this one runs the relay alone. A consumer that has handled it already, because another one failed and the
// message came again, sees a duplicate in its inbox.
func (a *App) deliver(ctx context.Context, m *messaging.Message) error {
	var (
		errs []error
		own  []string
	)
	for _, c := range a.consumers {
		if c.subscription.Topic == m.Topic {
			errs = append(errs, c.handler.Handle(ctx, m))
			own = append(own, c.subscription.Name)
		}
	}
	return errors.Join(append(errs, a.Inbox.StoreForOthers(ctx, m, own...))...)
}

// declarer is a broker that can make topics and durable subscriptions ahead of their first consumer.
type declarer interface {
	Declare(ctx context.Context, topics []string, subscriptions []messaging.Subscription) error
}

// declare makes sure of the subscriptions: what is published to a topic without one may be deleted at any moment.
func (a *App) declare(ctx context.Context) error {
	if a.broker == nil {
		subscriptions := make([]inbox.Subscription, len(a.consumers))
		for i, c := range a.consumers {
			_, projection := c.handler.(*inbox.Projection)
			subscriptions[i] = inbox.Subscription{Topic: c.subscription.Topic, Consumer: c.subscription.Name, Projection: projection}
		}
		return a.Inbox.Subscribe(ctx, subscriptions...)
	}
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

// Pause stops the flow of messages to all consumers of that name in this process, until [App.Resume]: for as long as
// something that their handlers need is away. What they have received is still handled, and they keep their place among the
// other instances. An error if there is no such consumer, or no broker to wait at.
func (a *App) Pause(consumer string) error { return a.each(consumer, "Pause", (*messaging.Loop).Pause) }

// Resume starts the flow again.
func (a *App) Resume(consumer string) error {
	return a.each(consumer, "Resume", (*messaging.Loop).Resume)
}

func (a *App) each(name, call string, fn func(*messaging.Loop)) error {
	if a.broker == nil {
		return fmt.Errorf("oncebox: %s: without a broker the relay delivers, and there is nothing between to be paused", call)
	}
	found := false
	for _, c := range a.consumers {
		if c.subscription.Name == name {
			found = true
			fn(c.loop)
		}
	}
	if !found {
		return fmt.Errorf("oncebox: %s: this process has no consumer %q: see App.Consume", call, name)
	}
	return nil
}
