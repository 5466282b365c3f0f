package pulsar

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/topics"
)

// Inspection is the admin API's report on the topics of a namespace. It is for diagnosis only.
type Inspection struct {
	// Namespace is tenant/namespace.
	Namespace string
	// Topics lists the requested topics, or all topics of the namespace, by name.
	Topics []TopicInspection
}

// TopicInspection describes a topic.
type TopicInspection struct {
	// Name is the name of the topic, without its namespace.
	Name string
	// Partitions is 0 for a topic without partitions.
	Partitions int
	// Retained is how long the topic keeps messages that all subscriptions have acknowledged, or that no subscription needs. 0: not at all;
	// -1: without a limit.
	Retained time.Duration
	// Expires is the age at which the broker drops a message that was not acknowledged. 0: never.
	Expires time.Duration
	// Evicts says that the broker drops the oldest messages when the backlog is full, acknowledged or not.
	Evicts bool
	// Subscriptions lists the subscriptions of the topic, or of its first partition, by name.
	Subscriptions []SubscriptionInspection
	// Publishers lists the services that publish to the topic, or to its first partition, at present, as far as their producers name them.
	Publishers []PublisherInspection
}

// PublisherInspection is a service that publishes, and its database, see [Broker.Introduce].
type PublisherInspection struct{ Source, Installation string }

// SubscriptionInspection describes a subscription.
type SubscriptionInspection struct {
	// Name is the name of the subscription, which is that of the consumer.
	Name string
	// Type is Pulsar's type: Failover, Key_Shared, Shared, Exclusive, or None until the first consumer came.
	Type string
	// Source is the service that the subscription belongs to, "" if it is not known.
	Source string
	// Installation is the database of the service, "" if it is not known.
	Installation string
	// Backlog is how many messages wait, Consumers how many consumers are connected, and Unattended how many partitions have messages and no consumer.
	Backlog               int64
	Consumers, Unattended int
}

// Reader reads the state of subscriptions from the admin API. It needs no connection to the broker itself.
type Reader struct{ admin *topics.Admin }

// NewReader returns a reader that uses the admin API of cfg.
func NewReader(cfg *Config) (*Reader, error) {
	a, err := adminOf(cfg)
	if err != nil {
		return nil, err
	}
	a.KeepNothingOpen()
	return &Reader{a}, nil
}

// adminOf returns the admin API of a configuration before defaults are set.
func adminOf(cfg *Config) (*topics.Admin, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := cfg.WithDefaults()
	return topics.NewAdmin(c.keeper())
}

// Topics returns the names of all persistent topics of the namespace.
func (r *Reader) Topics(ctx context.Context) ([]string, error) { return r.admin.ListTopics(ctx) }

// ReadSubscription implements [messaging.SubscriptionReader].
func (r *Reader) ReadSubscription(ctx context.Context, topic, name string) (messaging.SubscriptionState, error) {
	return r.admin.State(ctx, topic, name)
}

// maxInspected is the largest number of topics of an Inspection.
const maxInspected = 1000

// Inspect reads topics from the admin API of cfg, or all topics of the namespace if none is named, up to 1,000. It changes nothing, and
// needs no connection to the broker itself.
func Inspect(ctx context.Context, cfg *Config, names ...string) (*Inspection, error) {
	a, err := adminOf(cfg)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	if len(names) == 0 {
		if names, err = a.ListTopics(ctx); err != nil {
			return nil, fmt.Errorf("pulsar: Inspect: ask the admin API (Config.AdminURL, ONCEBOX_PULSAR_ADMIN_URL): %w", err)
		}
	}
	found := &Inspection{Namespace: a.Namespace()}
	for _, name := range names[:min(len(names), maxInspected)] {
		t, err := inspect(ctx, a, name)
		if err != nil {
			return nil, fmt.Errorf("pulsar: Inspect topic %s: %w", name, err)
		}
		found.Topics = append(found.Topics, t)
	}
	return found, nil
}

// inspect asks for one topic. Subscriptions are those of the first partition, because they belong to all partitions.
func inspect(ctx context.Context, a *topics.Admin, name string) (t TopicInspection, err error) {
	t.Name = name
	if t.Partitions, err = a.Partitions(ctx, name); err != nil {
		return t, err
	}
	if t.Retained, err = a.Retained(ctx, name); err != nil {
		return t, err
	}
	if t.Expires, err = a.Expires(ctx, name); err != nil {
		return t, err
	}
	if t.Evicts, err = a.Evicts(ctx, name); err != nil {
		return t, err
	}
	stats, err := a.Stats(ctx, topics.FirstPartition(name, t.Partitions))
	if err != nil {
		return t, err
	}
	for subscription, s := range stats.Subscriptions {
		waits, err := a.State(ctx, name, subscription)
		if err != nil {
			return t, err
		}
		t.Subscriptions = append(t.Subscriptions, SubscriptionInspection{
			Name: subscription, Type: s.Type, Source: s.Properties[topics.SourceProperty], Installation: s.Properties[topics.InstallationProperty],
			Backlog: waits.Messages, Consumers: waits.Consumers, Unattended: waits.Unattended,
		})
	}
	for _, p := range stats.Publishers {
		is := PublisherInspection{p.Metadata[topics.SourceProperty], p.Metadata[topics.InstallationProperty]}
		// Producers of other programs have no such properties and are left out.
		if is.Source != "" && !slices.Contains(t.Publishers, is) {
			t.Publishers = append(t.Publishers, is)
		}
	}
	slices.SortFunc(t.Subscriptions, func(a, b SubscriptionInspection) int { return strings.Compare(a.Name, b.Name) })
	return t, nil
}
