package topics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
)

// Declare makes topics, and subscriptions with their topics, if they do not exist; existing ones are not changed. It may be called again,
// and by many processes at once. The names are valid, and the broker has been reached once. While the broker is down it tries again, until
// ctx is done; then the error is a [messaging.ErrBrokerDown].
func (k *Keeper) Declare(ctx context.Context, topics []string, subscriptions []messaging.Subscription) error {
	topics = slices.Clone(topics)
	for _, s := range subscriptions {
		topics = append(topics, s.Topic)
	}
	if len(topics) == 0 {
		return nil
	}
	// A topic of several subscriptions is declared once.
	slices.Sort(topics)
	topics = slices.Compact(topics)
	withAdmin := k.HasAdmin(ctx)
	// All subscriptions are checked before the first topic is made: a refused start leaves nothing behind.
	if withAdmin {
		if err := k.admitAll(ctx, subscriptions); err != nil {
			return err
		}
	}
	partitions, err := k.declareTopics(ctx, topics, withAdmin)
	if err != nil {
		return err
	}
	for _, s := range subscriptions {
		declare := k.subscribeAndLeave
		if withAdmin {
			declare = func(ctx context.Context, s messaging.Subscription) error {
				return answer.Clear(ctx, func() error {
					if err := k.declareSubscription(ctx, s, partitions[s.Topic]); err != nil {
						return err
					}
					return k.own(ctx, s, partitions[s.Topic])
				})
			}
		}
		if err := declare(ctx, s); err != nil {
			return fmt.Errorf("pulsar: declare subscription %q of topic %q: %w", s.Name, s.Topic, k.undeclared(ctx, err))
		}
		k.remember(s)
	}
	return nil
}

// declareTopics makes the topics that do not exist, and returns how many partitions each has, as far as the
// admin API says so.
func (k *Keeper) declareTopics(ctx context.Context, topics []string, withAdmin bool) (map[string]int, error) {
	partitions := map[string]int{}
	for _, name := range topics {
		var err error
		if withAdmin {
			err = answer.Clear(ctx, func() (err error) {
				partitions[name], err = k.declareTopic(ctx, name)
				return err
			})
		} else {
			err = k.warnOfOnePartition(ctx, name)
		}
		if err != nil {
			return nil, fmt.Errorf("pulsar: declare topic %q: %w", name, k.undeclared(ctx, err))
		}
	}
	return partitions, nil
}

// admitAll checks that no subscription belongs to another service or database, before the first of them is made.
func (k *Keeper) admitAll(ctx context.Context, subscriptions []messaging.Subscription) error {
	for _, s := range subscriptions {
		if err := answer.Clear(ctx, func() error { return k.admit(ctx, s) }); err != nil {
			return fmt.Errorf("pulsar: declare subscription %q of topic %q: %w", s.Name, s.Topic, k.undeclared(ctx, err))
		}
	}
	return nil
}

// warnOfOnePartition logs that a topic has no partitions, or will have none once its first use has made it: adding partitions later moves
// keys.
func (k *Keeper) warnOfOnePartition(ctx context.Context, name string) error {
	if k.cfg.Partitions == 1 {
		return nil
	}
	full := k.FullName(name)
	names, err := answer.Insist(ctx, k.to.Background, func() ([]string, error) { return k.to.Client.TopicPartitions(full) }, func([]string) {})
	if err != nil && !answer.IsMissing(err) || len(names) > 0 && names[0] != full {
		return err
	}
	k.to.Log.WarnContext(ctx, "oncebox: a topic is missing or has no partitions, and oncebox cannot create it because Config.AdminURL is not set "+
		"or does not answer. The broker creates it by its own defaults, usually without partitions, and then only one Failover consumer works at "+
		"a time. Set Config.AdminURL (ONCEBOX_PULSAR_ADMIN_URL), or create the topic with the command in the field make. If one partition is "+
		"intended, set Config.Partitions to 1 (ONCEBOX_PULSAR_PARTITIONS)",
		"topic", full, "make", fmt.Sprintf("pulsar-admin topics create-partitioned-topic -p %d %s", k.cfg.Partitions, full))
	return nil
}

// declareTopic returns how many partitions the topic has, 0 if it has none. The order matters: a subscription that is
// put on a missing topic makes it unpartitioned.
func (k *Keeper) declareTopic(ctx context.Context, name string) (int, error) {
	made, err := k.Admin.MakeTopic(ctx, name, k.cfg.Partitions)
	// Without the right to make topics the topic may exist all the same, so its partitions are asked for below.
	if err != nil && !answer.IsForbidden(err) {
		return 0, err
	}
	if made {
		k.to.Log.InfoContext(ctx, "oncebox: topic created", "topic", k.FullName(name), "partitions", k.cfg.Partitions)
		return k.cfg.Partitions, nil
	}
	// "It exists" may mean any number of partitions, none too, or that another process is just making it.
	n, look := k.Admin.Partitions(ctx, name)
	// 404 after "it exists" means that another process is making it. It appears within moments.
	for attempt := 1; err == nil && answer.IsStatus(look, http.StatusNotFound) && adapters.Pause(ctx, attempt) == nil; attempt++ {
		n, look = k.Admin.Partitions(ctx, name)
	}
	if look != nil {
		return 0, errors.Join(err, look)
	}
	if n != k.cfg.Partitions {
		k.to.Log.InfoContext(ctx, "oncebox: topic has another number of partitions than Config.Partitions; it is used with the number that it has",
			"topic", k.FullName(name), "partitions", n, "configured", k.cfg.Partitions)
	}
	return n, nil
}

// declareSubscription tries until all partitions have the subscription. One request is not enough: if several processes make it at once,
// the broker answers some of them that it exists, and some that it is busy, before all partitions are done.
func (k *Keeper) declareSubscription(ctx context.Context, s messaging.Subscription, partitions int) error {
	for attempt := 1; ; attempt++ {
		made, err := k.Admin.makeSubscription(ctx, s)
		switch {
		case made:
			return nil
		// The credentials may consume and not administer. The client can then make the subscription by subscribing.
		case answer.IsForbidden(err):
			return k.subscribeAndLeave(ctx, s)
		// These three also come while another process makes the topic or the subscription, so they are not final.
		case err != nil && !answer.IsStatus(err, http.StatusNotFound, http.StatusInternalServerError, http.StatusServiceUnavailable):
			return err
		}
		have, look := k.Admin.Subscribed(ctx, s.Topic, partitions, s.Name)
		if have || look != nil {
			return look
		}
		if late := adapters.Pause(ctx, attempt); late != nil {
			return errors.Join(late, err)
		}
	}
}

// subscribeAndLeave makes a subscription with the client alone: subscribing makes it, and closing keeps it.
// It begins at the earliest message. The queue of one message keeps the broker from sending much to a
// consumer that leaves at once.
func (k *Keeper) subscribeAndLeave(ctx context.Context, s messaging.Subscription) error {
	consumer, err := answer.Insist(ctx, k.to.Background, func() (pulsarclient.Consumer, error) {
		return k.to.Client.Subscribe(pulsarclient.ConsumerOptions{
			Topic: k.FullName(s.Topic), SubscriptionName: s.Name, Type: TypeOf(s.Type), ReceiverQueueSize: 1,
			SubscriptionInitialPosition: pulsarclient.SubscriptionPositionEarliest,
			SubscriptionProperties:      Properties(s),
		})
	}, pulsarclient.Consumer.Close)
	if err == nil {
		consumer.Close()
	}
	return err
}

// undeclared turns the cause of a failed declaration into an error of one of the classes of package messaging, which says what to do.
func (k *Keeper) undeclared(ctx context.Context, err error) error {
	switch {
	case answer.IsMissing(err):
		return k.nowhere(ctx, err)
	case answer.Lasts(err), errors.Is(err, messaging.ErrBrokerDown):
		return err
	default:
		return answer.Down("declare", k.cfg.URL, err)
	}
}

// nowhere returns an error that names the missing part of a topic's name (tenant, namespace or topic), as far as it can be found out, and
// how to make it.
func (k *Keeper) nowhere(ctx context.Context, err error) error {
	tenant := "tenant " + strconv.Quote(k.cfg.Tenant) + " (ONCEBOX_PULSAR_TENANT), made by: pulsar-admin tenants create " + k.cfg.Tenant
	name := k.cfg.Tenant + "/" + k.cfg.Namespace
	namespace := "namespace " + strconv.Quote(name) + " (ONCEBOX_PULSAR_NAMESPACE), made by: pulsar-admin namespaces create " + name
	// The API can answer which part is missing. Without it all three are named.
	if reached, _ := k.Presence.know(); reached {
		switch {
		case answer.IsStatus(k.Admin.do(ctx, http.MethodGet, "/namespaces/"+k.cfg.Tenant, "", nil), http.StatusNotFound):
			return fmt.Errorf("there is no %s; then its namespace: pulsar-admin namespaces create %s/%s: %w", tenant, k.cfg.Tenant, k.cfg.Namespace, err)
		case answer.IsStatus(k.Admin.do(ctx, http.MethodGet, "/namespaces/"+k.Admin.namespace+"/retention", "", nil), http.StatusNotFound):
			return fmt.Errorf("there is no %s: %w", namespace, err)
		}
		return err
	}
	return fmt.Errorf("the topic cannot be created; check three things: that there is a %s; that there is a %s; and that the broker creates "+
		"topics when they are used: %w", tenant, namespace, err)
}

// UnknownPlace returns the error for a topic whose tenant or namespace the broker does not know, without asking which of them.
func (k *Keeper) UnknownPlace(err error) error {
	if !answer.IsMissing(err) {
		return err
	}
	return fmt.Errorf("the broker does not know the topic; either the tenant %q (ONCEBOX_PULSAR_TENANT) or the namespace %q (ONCEBOX_PULSAR_NAMESPACE) "+
		"does not exist, or the broker does not create topics when they are used: in that case declare the topic (ONCEBOX_PULSAR_TOPICS): %w",
		k.cfg.Tenant, k.cfg.Namespace, err)
}
