package pulsar

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/messaging"
)

// Declare makes topics, subscriptions and the topics of those, as far as they do not exist; what exists is used as it
// is. It may be called again, and by many processes at once.
//
// While the broker is down it tries again, until ctx is done or Config.ConnectTimeout has passed; then the error is a
// [messaging.ErrBrokerDown].
//
// It uses the admin API. If that cannot be reached it says so in the log, and makes the subscriptions by subscribing;
// topics are then made by the broker, with one partition or as it is configured.
func (b *Broker) Declare(ctx context.Context, topics []string, subscriptions []messaging.Subscription) error {
	var errs []error
	for _, s := range subscriptions {
		errs = append(errs, validSubscription(s))
	}
	for _, name := range topics {
		if err := ValidateTopic(name); err != nil {
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
	if len(topics)+len(subscriptions) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.ConnectTimeout)
	defer cancel()
	defer context.AfterFunc(b.open, cancel)()
	if err := b.started(ctx, "declare"); err != nil {
		return err
	}
	return b.declare(ctx, topics, subscriptions)
}

// declare is Declare when the names are known to be valid and the broker has been reached once.
func (b *Broker) declare(ctx context.Context, topics []string, subscriptions []messaging.Subscription) error {
	topics = slices.Clone(topics)
	for _, s := range subscriptions {
		b.heed(s) // those of Config come this way only
		topics = append(topics, s.Topic)
	}
	if len(topics) == 0 {
		return nil
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	withAdmin := b.hasAdmin(ctx)
	if withAdmin {
		if err := b.admitAll(ctx, subscriptions); err != nil {
			return err
		}
	}
	partitions, err := b.declareTopics(ctx, topics, withAdmin)
	if err != nil {
		return err
	}
	for _, s := range subscriptions {
		declare := b.subscribeAndLeave
		if withAdmin {
			declare = func(ctx context.Context, s messaging.Subscription) error {
				return answered(ctx, func() error {
					if err := b.declareSubscription(ctx, s, partitions[s.Topic]); err != nil {
						return err
					}
					return b.own(ctx, s, partitions[s.Topic])
				})
			}
		}
		if err := declare(ctx, s); err != nil {
			return fmt.Errorf("pulsar: declare subscription %q of topic %q: %w", s.Name, s.Topic, b.undeclared(ctx, err))
		}
		b.remember(s)
	}
	return nil
}

// declareTopics returns how many partitions the topics have, as far as the admin API says so.
func (b *Broker) declareTopics(ctx context.Context, topics []string, withAdmin bool) (map[string]int, error) {
	partitions := map[string]int{}
	for _, name := range topics {
		var err error
		if withAdmin {
			err = answered(ctx, func() (err error) {
				partitions[name], err = b.declareTopic(ctx, name)
				return err
			})
		} else {
			err = b.warnOfOnePartition(ctx, name)
		}
		if err != nil {
			return nil, fmt.Errorf("pulsar: declare topic %q: %w", name, b.undeclared(ctx, err))
		}
	}
	return partitions, nil
}

// admitAll looks whether any of the subscriptions belongs to somebody else, before one of them is made.
func (b *Broker) admitAll(ctx context.Context, subscriptions []messaging.Subscription) error {
	for _, s := range subscriptions {
		if err := answered(ctx, func() error { return b.admit(ctx, s) }); err != nil {
			return fmt.Errorf("pulsar: declare subscription %q of topic %q: %w", s.Name, s.Topic, b.undeclared(ctx, err))
		}
	}
	return nil
}

// warnOfOnePartition says that a topic has no partitions, or will have none, before the first use makes it so: they cannot be
// had later without moving keys.
func (b *Broker) warnOfOnePartition(ctx context.Context, name string) error {
	if b.cfg.Partitions == 1 {
		return nil
	}
	full := b.fullName(name)
	names, err := insist(ctx, &b.background, func() ([]string, error) { return b.client.TopicPartitions(full) }, func([]string) {})
	if err != nil && !isMissing(err) || len(names) > 0 && names[0] != full {
		return err
	}
	b.log.WarnContext(ctx, "oncebox: a topic is missing or has no partitions, and without the admin API the broker makes it as it is configured, "+
		"without partitions if nothing else is said: one Failover consumer works at a time then. Set Config.AdminURL "+
		"(ONCEBOX_PULSAR_ADMIN_URL) or make the topic "+
		"before it is used; set Config.Partitions to 1 (ONCEBOX_PULSAR_PARTITIONS) if that is meant",
		"topic", full, "make", fmt.Sprintf("pulsar-admin topics create-partitioned-topic -p %d %s", b.cfg.Partitions, full))
	return nil
}

// heed ends the batches to a topic if one of its subscriptions does not bear them.
func (b *Broker) heed(s messaging.Subscription) {
	if s.Type == messaging.KeyShared {
		b.topic(s.Topic).unbatched.Store(true)
	}
}

// answered calls fn until the broker says yes or no: a broker that has just started fails now and then.
func answered(ctx context.Context, fn func() error) error {
	for attempt := 1; ; attempt++ {
		err := fn()
		if err == nil || lasts(err) || pause(ctx, attempt) != nil {
			return err
		}
	}
}

// declareTopic returns how many partitions the topic has, 0 if it has none. The order matters: a subscription that is
// put on a missing topic makes it unpartitioned.
func (b *Broker) declareTopic(ctx context.Context, name string) (int, error) {
	made, err := b.admin.makeTopic(ctx, name, b.cfg.Partitions)
	if err != nil && !isForbidden(err) {
		return 0, err
	}
	if made {
		b.log.InfoContext(ctx, "oncebox: topic made", "topic", b.fullName(name), "partitions", b.cfg.Partitions)
		return b.cfg.Partitions, nil
	}
	// "It exists" may mean any number of partitions, none too, or that another process is just making it.
	n, look := b.admin.partitions(ctx, name)
	for attempt := 1; err == nil && isStatus(look, http.StatusNotFound) && pause(ctx, attempt) == nil; attempt++ {
		n, look = b.admin.partitions(ctx, name)
	}
	if look != nil {
		return 0, errors.Join(err, look)
	}
	if n != b.cfg.Partitions {
		b.log.InfoContext(ctx, "oncebox: topic has another number of partitions and is used as it is",
			"topic", b.fullName(name), "partitions", n, "configured", b.cfg.Partitions)
	}
	return n, nil
}

// declareSubscription tries until all partitions have it: when several processes make it, the broker tells some of them
// that it exists, and some that it is busy, before all partitions are done.
func (b *Broker) declareSubscription(ctx context.Context, s messaging.Subscription, partitions int) error {
	for attempt := 1; ; attempt++ {
		made, err := b.admin.makeSubscription(ctx, s)
		switch {
		case made:
			return nil
		case isForbidden(err):
			return b.subscribeAndLeave(ctx, s)
		case err != nil && !isStatus(err, http.StatusNotFound, http.StatusInternalServerError, http.StatusServiceUnavailable):
			return err
		}
		have, look := b.admin.subscribed(ctx, s.Topic, partitions, s.Name)
		if have || look != nil {
			return look
		}
		if late := pause(ctx, attempt); late != nil {
			return errors.Join(late, err)
		}
	}
}

// subscribeAndLeave makes a subscription with the client alone.
func (b *Broker) subscribeAndLeave(ctx context.Context, s messaging.Subscription) error {
	consumer, err := insist(ctx, &b.background, func() (pulsarclient.Consumer, error) {
		return b.client.Subscribe(pulsarclient.ConsumerOptions{
			Topic: b.fullName(s.Topic), SubscriptionName: s.Name, Type: subscriptionType(s.Type), ReceiverQueueSize: 1,
			SubscriptionInitialPosition: pulsarclient.SubscriptionPositionEarliest,
			SubscriptionProperties:      subscriptionProperties(s),
		})
	}, pulsarclient.Consumer.Close)
	if err == nil {
		consumer.Close()
	}
	return err
}
