package memory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/receipts"
	"github.com/oncebox/oncebox/telemetry"
)

// Broker carries messages within the process. It starts no goroutine. All methods are safe for concurrent use.
type Broker struct {
	cfg       Config
	log       *slog.Logger
	telemetry *otelx.Later[instruments]

	mu      sync.Mutex // guards all fields below, and the state of all topics, subscriptions and receivers
	topics  map[string]*topic
	refuse  func(event.Envelope) error
	closed  bool
	joiners int // number of receivers made so far; it names receivers that have no name
}

// New returns an empty broker. It panics if cfg is not valid: that is a mistake in the program, found at its start.
func New(cfg *Config) *Broker {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	b := &Broker{cfg: cfg.WithDefaults(), topics: map[string]*topic{}}
	b.telemetry = otelx.NewLater(b.cfg.Telemetry, newInstruments)
	b.log = otelx.Logger(b.telemetry.Logger())
	return b
}

// instruments has the tracer and the metrics of a broker.
type instruments struct {
	tracer    trace.Tracer
	published metric.Int64Counter
}

func newInstruments(to telemetry.Config) *instruments {
	return &instruments{
		tracer: otelx.Tracer(to.TracerProvider, "messaging/memory"),
		published: otelx.Counter(otelx.Meter(to.MeterProvider, "messaging/memory"),
			"oncebox.broker.published", "Messages that were sent to the broker, by outcome"),
	}
}

// Observe implements [messaging.Observed].
func (b *Broker) Observe(t telemetry.Config) { b.telemetry.Use(t) }

// Publish implements [messaging.Publisher].
func (b *Broker) Publish(ctx context.Context, msgs []event.Envelope) error {
	ctx, span := b.telemetry.Instruments().tracer.Start(ctx, "publish", trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("messaging.system", "memory"), attribute.Int("messaging.batch.message_count", len(msgs))))
	defer span.End()

	window := receipts.Window{InFlight: 1} // each message has its receipt before the next one
	failed, _ := window.Publish(ctx, msgs, nil, func(ctx context.Context, i int, receipt func(error)) error {
		receipt(b.publish(ctx, &msgs[i]))
		return nil
	})
	for i := range msgs {
		b.count(ctx, msgs[i].Topic, failed[i])
	}
	if len(failed) > 0 {
		err := &messaging.PublishError{Failed: failed}
		span.RecordError(err)
		return err
	}
	return nil
}

func (b *Broker) publish(ctx context.Context, env *event.Envelope) error {
	if ctx.Err() != nil {
		// The message was not stored. ErrUnknown costs no attempt and concerns no other message.
		return fmt.Errorf("%w: the message was not sent: %w", messaging.ErrUnknown, context.Cause(ctx))
	}
	if err := event.ValidateTopic(env.Topic); err != nil {
		return messaging.Permanent(err)
	}
	if env.SchemaVersion > math.MaxInt32 {
		return messaging.Permanent(fmt.Errorf("memory: the message has schema version %d, the largest that is allowed is "+
			"%d", env.SchemaVersion, math.MaxInt32))
	}
	if n := size(env); n > b.cfg.MaxMessageBytes {
		return messaging.Permanent(fmt.Errorf("memory: the message has %d bytes, more than the %d of "+
			"Config.MaxMessageBytes", n, b.cfg.MaxMessageBytes))
	}
	b.mu.Lock()
	refuse := b.refuse
	b.mu.Unlock()
	if refuse != nil {
		// The mutex is not held here: the function of a test may call the broker.
		if err := refuse(clone(env)); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("%w: memory: publish after Close", messaging.ErrBrokerDown)
	}
	t := b.topic(env.Topic)
	if len(t.subscriptions) == 0 && !t.told {
		t.told = true
		b.log.InfoContext(ctx, "oncebox: memory: no consumer in this process is subscribed to the topic of this message, so it waits in memory. "+
			"If a consumer should handle it, compare the topic with the argument of App.Consume", "topic", env.Topic, "type", env.Type, "id", env.ID)
	}
	t.append(clone(env))
	return nil
}

// count counts messages and not calls, because a call may fail in part.
func (b *Broker) count(ctx context.Context, topic string, err error) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	b.telemetry.Instruments().published.Add(ctx, 1, metric.WithAttributes(attribute.String("topic", topic), attribute.String("outcome", outcome)))
}

// Subscribe implements [messaging.Subscriber]. A new subscription begins at the earliest message that the topic still has.
func (b *Broker) Subscribe(ctx context.Context, s messaging.Subscription) (messaging.Receiver, error) {
	if err := errors.Join(s.Validate(), ctx.Err()); err != nil {
		return nil, fmt.Errorf("memory: subscribe: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, fmt.Errorf("memory: subscribe: %w: the broker is closed", messaging.ErrBrokerDown)
	}
	sub, err := b.topic(s.Topic).subscription(s)
	if err != nil {
		return nil, err
	}
	b.joiners++
	r := newReceiver(b, sub, s, b.joiners)
	sub.join(r)
	return r, nil
}

// Declare implements [messaging.Declarer]: it makes the subscriptions that do not exist. They begin at the earliest message that the topic still has.
// A topic exists as soon as it is used, so topics are only checked for their names.
func (b *Broker) Declare(ctx context.Context, topics []string, subscriptions []messaging.Subscription) error {
	errs := []error{ctx.Err()}
	for _, topic := range topics {
		errs = append(errs, event.ValidateTopic(topic))
	}
	for _, s := range subscriptions {
		errs = append(errs, s.Validate())
		// Nothing is made before all names are checked, so a declaration that fails leaves nothing behind.
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("memory: declare: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("memory: declare: %w: the broker is closed", messaging.ErrBrokerDown)
	}
	for _, s := range subscriptions {
		if t := b.topics[s.Topic]; t != nil {
			if err := t.admit(s); err != nil { // all are checked before the first is made, so that an error leaves nothing behind
				return err
			}
		}
	}
	for _, s := range subscriptions {
		if _, err := b.topic(s.Topic).subscription(s); err != nil {
			return err
		}
	}
	return nil
}

// ReadSubscription implements [messaging.SubscriptionReader].
func (b *Broker) ReadSubscription(_ context.Context, topic, name string) (messaging.SubscriptionState, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return messaging.SubscriptionState{}, fmt.Errorf("memory: read subscription: %w: the broker is closed", messaging.ErrBrokerDown)
	}
	if t := b.topics[topic]; t != nil && t.subscriptions[name] != nil {
		return t.subscriptions[name].state(), nil
	}
	return messaging.SubscriptionState{Missing: true}, nil
}

// Unused implements [diagnosis.UseReader].
func (b *Broker) Unused(_ context.Context, topic string) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false, fmt.Errorf("memory: read the use of a topic: %w: the broker is closed", messaging.ErrBrokerDown)
	}
	t := b.topics[topic]
	return t == nil || t.next == 0, nil
}

// Close ends the broker: receivers return [messaging.ErrClosed], and Publish returns [messaging.ErrBrokerDown].
func (b *Broker) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, t := range b.topics {
		for _, s := range t.subscriptions {
			// leave removes the receiver from the list, hence the loop over the first.
			for len(s.receivers) > 0 {
				s.leave(s.receivers[0])
			}
		}
	}
	return nil
}

// Refuse makes Publish call fn for each message, for tests. If fn returns an error, the message is not stored, and Publish reports this error for it,
// and [messaging.ErrBehind] for later messages of its key in the same call. With nil the broker accepts every message again.
func (b *Broker) Refuse(fn func(event.Envelope) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = fn
}

// Redeliver delivers the message with this id to the subscription once more, settled or not. It comes before all waiting messages, as
// after a crash of the broker.
func (b *Broker) Redeliver(subscription, topic, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, ok := b.topics[topic]
	if !ok {
		return fmt.Errorf("memory: redeliver: there is no topic %q", topic)
	}
	s, ok := t.subscriptions[subscription]
	if !ok {
		return fmt.Errorf("memory: redeliver: topic %q has no subscription %q", topic, subscription)
	}
	// All copies of the id are not needed: one delivery is enough for a test of duplicates.
	for _, e := range t.log {
		if e.env.ID == id {
			s.add(e)
			return nil
		}
	}
	return fmt.Errorf("memory: redeliver: topic %q has no message with id %q", topic, id)
}

// Disconnect acts like a lost connection: messages that consumers have received and not settled are delivered again. The consumers may
// still settle their copies.
func (b *Broker) Disconnect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.topics {
		for _, s := range t.subscriptions {
			// All slots, also those of other receivers: a broker that goes down loses all its connections.
			for _, l := range s.slots {
				for d := range l.out {
					s.giveBack(d)
				}
			}
			s.share()
		}
	}
}

// Messages returns the messages that the topic still has, in the order in which they were published.
func (b *Broker) Messages(topic string) []event.Envelope {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, ok := b.topics[topic]
	if !ok {
		return nil
	}
	out := make([]event.Envelope, 0, len(t.log))
	for _, e := range t.log {
		out = append(out, clone(&e.env))
	}
	return out
}

// topic returns the topic with this name, and makes it if it does not exist. The caller holds the mutex.
func (b *Broker) topic(name string) *topic {
	t, ok := b.topics[name]
	if !ok {
		t = &topic{broker: b, name: name, subscriptions: map[string]*subscription{}}
		b.topics[name] = t
	}
	return t
}
