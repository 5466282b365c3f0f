package pulsar

import (
	"context"
	"fmt"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	clientbackoff "github.com/apache/pulsar-client-go/pulsar/backoff"
	"github.com/apache/pulsar-client-go/pulsar/crypto"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/topics"
)

// Subscribe joins a subscription. It makes topic and subscription if they do not exist, as [Broker.Declare] does. While the broker is down
// it tries again, until ctx is done or Config.ConnectTimeout has passed; then the error is a [messaging.ErrBrokerDown]. After later outages
// the receiver connects again by itself.
//
// Subscription.Queue is per partition.
func (b *Broker) Subscribe(ctx context.Context, s messaging.Subscription) (messaging.Receiver, error) {
	if err := topics.ValidateSubscription(s); err != nil {
		return nil, fmt.Errorf("pulsar: subscribe: %w", err)
	}
	ctx, leave, err := b.calls.Begin(ctx, b.open, "pulsar: subscribe", b.cfg.ConnectTimeout)
	if err != nil {
		return nil, err
	}
	defer leave()
	b.heed(s)
	if err := b.start.Wait(ctx, fmt.Sprintf("subscribe %q of topic %q", s.Name, s.Topic)); err != nil {
		return nil, err
	}
	if err := b.declareOnce(ctx, s); err != nil {
		return nil, b.unsubscribed(s, err)
	}
	r := newReceiver(b, s)
	r.options = b.consumerOptions(s, r)
	if r.consumer, err = r.subscribe(ctx); err != nil {
		return nil, b.unsubscribed(s, err)
	}
	b.mu.Lock()
	b.receivers[r] = true
	b.mu.Unlock()
	return r, nil
}

// subscribe tries until the broker answers. A consumer that comes too late is closed, because nobody would
// receive from it.
func (r *receiver) subscribe(ctx context.Context) (pulsarclient.Consumer, error) {
	return answer.Insist(ctx, &r.broker.background, r.join, pulsarclient.Consumer.Close)
}

// join makes a consumer of Pulsar's client.
func (r *receiver) join() (pulsarclient.Consumer, error) {
	partitions, err := r.broker.client.TopicPartitions(r.options.Topic)
	if err != nil {
		return nil, err
	}
	consumer := r.links.begin(len(partitions))
	options := r.options
	options.BackOffPolicyFunc = func() clientbackoff.Policy { return r.links.lose(consumer, r.turns.reconnect()) }
	return r.broker.client.Subscribe(options)
}

// unsubscribed sorts the error of a failed subscription: for good, about the topic, or about the broker. Each asks the
// caller for something else.
func (b *Broker) unsubscribed(s messaging.Subscription, err error) error {
	if answer.IsForeign(err) {
		return messaging.Permanent(fmt.Errorf("pulsar: subscribe: %w", err))
	}
	if answer.IsTopicTrouble(err) {
		return fmt.Errorf("pulsar: subscribe %q: %w", s.Name, &messaging.TopicError{Topic: s.Topic, Err: b.keeper.UnknownPlace(err)})
	}
	return answer.Down(fmt.Sprintf("subscribe %q of topic %q", s.Name, s.Topic), b.cfg.URL, err)
}

// declareOnce declares a subscription that this process has not declared yet. Without the admin API there is nothing to
// do before subscribing.
func (b *Broker) declareOnce(ctx context.Context, s messaging.Subscription) error {
	if b.keeper.Declared(s) || !b.keeper.HasAdmin(ctx) {
		return nil
	}
	return b.declare(ctx, nil, []messaging.Subscription{s})
}

// consumerOptions names the consumer and sets what oncebox's guarantees need of the client.
func (b *Broker) consumerOptions(s messaging.Subscription, r *receiver) pulsarclient.ConsumerOptions {
	name := s.Consumer
	if name == "" {
		// The number is the same after a restart if the program subscribes in the same order.
		b.mu.Lock()
		b.joined++
		name = fmt.Sprintf("%s-%d", b.cfg.Name, b.joined)
		b.mu.Unlock()
	}
	r.name = name
	queue := s.Queue
	if queue == 0 {
		queue = 64
	}
	return pulsarclient.ConsumerOptions{
		Topic:                       b.keeper.FullName(s.Topic),
		SubscriptionName:            s.Name,
		Type:                        topics.TypeOf(s.Type),
		Name:                        name,
		ReceiverQueueSize:           queue,
		SubscriptionInitialPosition: pulsarclient.SubscriptionPositionEarliest,
		SubscriptionProperties:      topics.Properties(s), // used if the subscription does not exist any more
		Interceptors:                pulsarclient.ConsumerInterceptors{watch{r}},
		EventListener:               r.turns,
		// The client's default requests the message again every second, and loses a permit of the partition each time.
		Decryption:          &pulsarclient.MessageDecryptionInfo{ConsumerCryptoFailureAction: crypto.ConsumerCryptoFailureActionConsume},
		NackRedeliveryDelay: time.Second, // used only when a receiver asks for redelivery
	}
}
