package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/diagnosis"
	"github.com/oncebox/oncebox/messaging/kafka/internal/topics"
	"github.com/oncebox/oncebox/telemetry"
)

var (
	_ messaging.Declarer           = (*Broker)(nil)
	_ messaging.Naming             = (*Broker)(nil)
	_ messaging.Observed           = (*Broker)(nil)
	_ messaging.SubscriptionReader = (*Broker)(nil)
	_ messaging.RetentionReader    = (*Broker)(nil)
	_ diagnosis.Examiner           = (*Broker)(nil)
)

// Declare makes topics, and subscriptions with their topics, if they do not exist; existing ones are not changed. With [Check] a topic that does
// not exist is an error. It looks at all that exists first, and asks the broker whether it would make what is missing: an unusable topic, or a
// subscription of another service, is an error before anything is made. It may be called again, and by many processes at once.
//
// A subscription begins at the earliest message. While the broker is down it tries again, until ctx is done or Config.ConnectTimeout has passed; then
// the error is a [messaging.ErrBrokerDown].
func (b *Broker) Declare(ctx context.Context, names []string, subscriptions []messaging.Subscription) error {
	var errs []error
	for _, s := range subscriptions {
		errs = append(errs, b.cfg.names().ValidateSubscription(s))
	}
	for _, name := range names {
		errs = append(errs, wrap("topic "+name, b.cfg.names().ValidateTopic(name)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("kafka: declare: %w", err)
	}
	ctx, leave, err := b.enter(ctx, "declare", b.cfg.ConnectTimeout)
	if err != nil {
		return err
	}
	defer leave()
	if err := b.start.Wait(ctx, "declare"); err != nil {
		return err
	}
	return adapters.Insist(ctx, func() error { return b.keeper.Declare(ctx, names, subscriptions) })
}

// ValidateTopic implements [messaging.Naming]: event.ValidateTopic accepts the name, and Kafka's name of the topic has at most 249 bytes.
func (b *Broker) ValidateTopic(name string) error { return b.cfg.names().ValidateTopic(name) }

// ValidateSubscription implements [messaging.Naming]. The type must be [messaging.Failover].
func (b *Broker) ValidateSubscription(s messaging.Subscription) error {
	return b.cfg.names().ValidateSubscription(s)
}

// ReadSubscription implements [messaging.SubscriptionReader].
func (b *Broker) ReadSubscription(ctx context.Context, topic, name string) (messaging.SubscriptionState, error) {
	s := messaging.Subscription{Topic: topic, Name: name}
	if err := b.cfg.names().ValidateSubscription(s); err != nil {
		return messaging.SubscriptionState{}, err
	}
	if err := b.start.Wait(ctx, "read subscription"); err != nil {
		return messaging.SubscriptionState{}, err
	}
	return b.keeper.State(ctx, s)
}

// Retention implements [messaging.RetentionReader]: a group whose offsets are set back gets again what the topic still has (retention.ms).
func (b *Broker) Retention(ctx context.Context, topic string) (time.Duration, error) {
	if err := b.cfg.names().ValidateTopic(topic); err != nil {
		return 0, err
	}
	if err := b.start.Wait(ctx, "retention"); err != nil {
		return 0, err
	}
	return b.keeper.Retention(ctx, topic)
}

// Unused implements [diagnosis.UseReader]. The broker does not know who will publish.
func (b *Broker) Unused(ctx context.Context, topic string) (bool, error) {
	if err := b.cfg.names().ValidateTopic(topic); err != nil {
		return false, err
	}
	if err := b.start.Wait(ctx, "read the use of a topic"); err != nil {
		return false, err
	}
	return b.keeper.Unused(ctx, topic)
}

// Examine implements [diagnosis.Examiner].
func (b *Broker) Examine(ctx context.Context, e diagnosis.Examination) ([]diagnosis.Finding, error) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.OperationTimeout)
	defer cancel()
	if err := b.ping(ctx); err != nil {
		mend := "start the broker, or correct ONCEBOX_KAFKA_URL"
		if topics.IsNotLetIn(err) || adapters.IsTLSFault(err) {
			mend = "correct ONCEBOX_KAFKA_SASL, ONCEBOX_KAFKA_USERNAME and ONCEBOX_KAFKA_PASSWORD, or ONCEBOX_KAFKA_TLS and the certificates"
		}
		return []diagnosis.Finding{diagnosis.Find(diagnosis.Connection, diagnosis.Problem,
			mend, "Kafka at %s does not answer: %v", b.cfg.URL, err)}, nil
	}
	return b.keeper.Examine(ctx, &e, b.cfg.MaxMessageBytes)
}

// Observe implements [messaging.Observed].
func (b *Broker) Observe(t telemetry.Config) { b.telemetry.Use(t) }
