package pulsar

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/oncebox/oncebox/messaging"
)

// Inspection is what the admin API says about the topics of a namespace. It is for a diagnosis, and nothing else decides by it.
type Inspection struct {
	// Namespace is tenant/namespace.
	Namespace string
	// Topics are those that were asked for, or all of the namespace, by name.
	Topics []TopicInspection
}

// TopicInspection is what is known of a topic.
type TopicInspection struct {
	// Name is the topic's, without its namespace.
	Name string
	// Partitions is 0 for a topic without any.
	Partitions int
	// Retained is for how long the topic keeps what every subscription has acknowledged, or what no subscription waits for. 0: not at all;
	// -1: without a limit.
	Retained time.Duration
	// Expires is after how long the broker drops a message that was not acknowledged. 0: never.
	Expires time.Duration
	// Evicts says that the broker drops the oldest messages when the backlog is full, also those that were not acknowledged.
	Evicts bool
	// Subscriptions are those of the topic, or of its first partition, by name.
	Subscriptions []SubscriptionInspection
	// Publishers are the services that publish to the topic at present, or to its first partition, as far as they say who they are.
	Publishers []PublisherInspection
}

// PublisherInspection is a service that publishes, and its database, see [Broker.Introduce].
type PublisherInspection struct{ Source, Installation string }

// SubscriptionInspection is what is known of a subscription.
type SubscriptionInspection struct {
	// Name is the subscription's, which is that of the consumer.
	Name string
	// Type is Pulsar's: Failover, Key_Shared, Shared, Exclusive, or None until the first consumer came.
	Type string
	// Source is the service that the subscription belongs to, "" if it is not known.
	Source string
	// Installation is the database of the service, "" if it is not known.
	Installation string
	// Backlog is how many messages wait, Consumers how many consumers are connected, and Unattended how many partitions have messages and no consumer.
	Backlog               int64
	Consumers, Unattended int
}

// Reader asks the admin API what waits for subscriptions. It needs no connection to the broker itself.
type Reader struct{ admin *admin }

// NewReader returns a reader with the admin API of cfg.
func NewReader(cfg *Config) (*Reader, error) {
	a, err := adminOf(cfg)
	if err != nil {
		return nil, err
	}
	a.http.Transport.(*http.Transport).DisableKeepAlives = true //nolint:forcetypeassert // newAdmin made it
	return &Reader{a}, nil
}

// adminOf returns the admin API of a configuration as users write it.
func adminOf(cfg *Config) (*admin, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := cfg.WithDefaults()
	return newAdmin(&c)
}

// Topics returns the names of all topics of the namespace that last.
func (r *Reader) Topics(ctx context.Context) ([]string, error) { return r.admin.listTopics(ctx) }

// ReadSubscription implements [messaging.SubscriptionReader].
func (r *Reader) ReadSubscription(ctx context.Context, topic, name string) (messaging.SubscriptionState, error) {
	return r.admin.state(ctx, topic, name)
}

// maxInspected bounds how many topics are asked about.
const maxInspected = 1000

// Inspect asks the admin API of cfg about topics, or about all topics of the namespace if none is named, up to 1,000. It changes nothing,
// and needs no connection to the broker itself.
func Inspect(ctx context.Context, cfg *Config, topics ...string) (*Inspection, error) {
	a, err := adminOf(cfg)
	if err != nil {
		return nil, err
	}
	defer a.http.CloseIdleConnections()
	if len(topics) == 0 {
		if topics, err = a.listTopics(ctx); err != nil {
			return nil, fmt.Errorf("pulsar: Inspect: ask the admin API (Config.AdminURL, ONCEBOX_PULSAR_ADMIN_URL): %w", err)
		}
	}
	found := &Inspection{Namespace: a.namespace}
	for _, name := range topics[:min(len(topics), maxInspected)] {
		t, err := a.inspect(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("pulsar: Inspect topic %s: %w", name, err)
		}
		found.Topics = append(found.Topics, t)
	}
	return found, nil
}

// listTopics returns the names of all topics that last, without those of partitions.
func (a *admin) listTopics(ctx context.Context) ([]string, error) {
	var partitioned, plain []string
	if err := a.do(ctx, http.MethodGet, "/persistent/"+a.namespace+"/partitioned", "", &partitioned); err != nil {
		return nil, err
	}
	if err := a.do(ctx, http.MethodGet, "/persistent/"+a.namespace, "", &plain); err != nil {
		return nil, err
	}
	prefix := "persistent://" + a.namespace + "/"
	var names []string
	for _, full := range append(partitioned, plain...) {
		name, ours := strings.CutPrefix(full, prefix)
		base, _, isPartition := strings.Cut(name, "-partition-")
		if ours && (!isPartition || !slices.Contains(partitioned, prefix+base)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (a *admin) inspect(ctx context.Context, name string) (t TopicInspection, err error) {
	t.Name = name
	if t.Partitions, err = a.partitions(ctx, name); err != nil {
		return t, err
	}
	kept, err := a.retention(ctx, name)
	if err != nil {
		return t, err
	}
	switch {
	case kept == nil, kept.Minutes == 0, kept.MB == 0:
	case kept.Minutes < 0:
		t.Retained = -1
	default:
		t.Retained = time.Duration(kept.Minutes) * time.Minute
	}
	var seconds *int
	if err := a.policy(ctx, name, "messageTTL", &seconds); err != nil {
		return t, err
	}
	if seconds != nil {
		t.Expires = time.Duration(*seconds) * time.Second
	}
	var quotas map[string]struct {
		Policy string `json:"policy"`
	}
	if err := a.policy(ctx, name, "backlogQuotaMap", &quotas); err != nil {
		return t, err
	}
	for _, quota := range quotas {
		t.Evicts = t.Evicts || quota.Policy == "consumer_backlog_eviction"
	}
	stats, err := a.stats(ctx, firstPartition(name, t.Partitions))
	if err != nil {
		return t, err
	}
	for subscription, s := range stats.Subscriptions {
		waits, err := a.state(ctx, name, subscription)
		if err != nil {
			return t, err
		}
		t.Subscriptions = append(t.Subscriptions, SubscriptionInspection{
			Name: subscription, Type: s.Type, Source: s.Properties[sourceProperty], Installation: s.Properties[installationProperty],
			Backlog: waits.Messages, Consumers: waits.Consumers, Unattended: waits.Unattended,
		})
	}
	for _, p := range stats.Publishers {
		is := PublisherInspection{p.Metadata[sourceProperty], p.Metadata[installationProperty]}
		if is.Source != "" && !slices.Contains(t.Publishers, is) {
			t.Publishers = append(t.Publishers, is)
		}
	}
	slices.SortFunc(t.Subscriptions, func(a, b SubscriptionInspection) int { return strings.Compare(a.Name, b.Name) })
	return t, err
}
