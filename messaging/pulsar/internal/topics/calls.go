package topics

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
)

// newSubscription is the body of a request for a subscription at the earliest message. Without a body the broker takes the latest.
type newSubscription struct {
	LedgerID   int               `json:"ledgerId"`       //nolint:tagliatelle // Pulsar's
	EntryID    int               `json:"entryId"`        //nolint:tagliatelle // Pulsar's
	Partition  int               `json:"partitionIndex"` //nolint:tagliatelle // Pulsar's
	Properties map[string]string `json:"properties,omitempty"`
}

// reachable asks the admin API about a topic, to see whether it answers. The topic need not exist.
func (a *Admin) reachable(ctx context.Context) error {
	_, err := a.Partitions(ctx, "oncebox")
	if answer.IsStatus(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// Partitions returns how many partitions a topic has, 0 if it has none or does not exist.
func (a *Admin) Partitions(ctx context.Context, topic string) (int, error) {
	var meta struct {
		Partitions *int `json:"partitions"`
	}
	if err := a.do(ctx, http.MethodGet, a.topic(topic)+"/partitions", "", &meta); err != nil {
		return 0, err
	}
	if meta.Partitions == nil {
		return 0, errors.New("the answer has no field partitions, so this is not Pulsar's admin API: correct Config.AdminURL " +
			"(ONCEBOX_PULSAR_ADMIN_URL)")
	}
	return *meta.Partitions, nil
}

// MakeTopic makes a partitioned topic. It returns false if there is one of that name, partitioned or not.
func (a *Admin) MakeTopic(ctx context.Context, topic string, partitions int) (bool, error) {
	return a.makeOnce(ctx, a.topic(topic)+"/partitions", strconv.Itoa(partitions))
}

// makeSubscription makes a subscription at the earliest message. It returns false if the broker answers that there is one, or that
// another request is making it.
func (a *Admin) makeSubscription(ctx context.Context, s messaging.Subscription) (bool, error) {
	// Ledger -1, entry -1 is the earliest message in Pulsar's notation.
	body, err := json.Marshal(newSubscription{-1, -1, -1, Properties(s)})
	if err != nil {
		return false, err
	}
	return a.makeOnce(ctx, a.subscription(s.Topic, s.Name), string(body))
}

// makeOnce returns false if the broker answers that it exists, or that another request is making it: several processes
// of a service start at once, and only one of them can be first.
func (a *Admin) makeOnce(ctx context.Context, path, body string) (bool, error) {
	err := a.do(ctx, http.MethodPut, path, body, nil)
	if answer.IsStatus(err, http.StatusConflict, http.StatusPreconditionFailed) {
		return false, nil
	}
	return err == nil, err
}

// Subscribed reports whether all partitions of a topic have a subscription.
// The broker makes a subscription partition by partition, so a single partition without it means that the work goes on.
func (a *Admin) Subscribed(ctx context.Context, topic string, partitions int, name string) (bool, error) {
	for n := range max(partitions, 1) {
		subscriptions, err := a.Subscriptions(ctx, partition(topic, partitions, n))
		if err != nil || subscriptions[name] == nil {
			return false, err
		}
	}
	return true, nil
}

// SubscriptionStats are the parts of a subscription's statistics that are used here.
type SubscriptionStats struct {
	Type       string            `json:"type"`                   // "None" until its first consumer
	Properties map[string]string `json:"subscriptionProperties"` //nolint:tagliatelle // Pulsar's
	Durable    *bool             `json:"isDurable"`              //nolint:tagliatelle // Pulsar's
}

// IsUnbatched reports whether the subscription is Key_Shared, or will be when its first consumer comes.
func (s *SubscriptionStats) IsUnbatched() bool {
	return s.Type == "Key_Shared" || s.Properties[unbatchedProperty] != ""
}

// FirstPartition is the topic itself if it has none.
func FirstPartition(topic string, partitions int) string { return partition(topic, partitions, 0) }

func partition(topic string, partitions, n int) string {
	if partitions == 0 {
		return topic
	}
	return topic + partitionMark + strconv.Itoa(n)
}

// Subscriptions returns the subscriptions of an unpartitioned topic or of one partition.
func (a *Admin) Subscriptions(ctx context.Context, topic string) (map[string]*SubscriptionStats, error) {
	stats, err := a.Stats(ctx, topic)
	return stats.Subscriptions, err
}

// TopicStats are the parts of the statistics of a topic, or of a partition, that are used here.
type TopicStats struct {
	Subscriptions map[string]*SubscriptionStats `json:"subscriptions"`
	Publishers    []struct {
		Metadata map[string]string `json:"metadata"`
	} `json:"publishers"`
}

// Stats returns the statistics of an unpartitioned topic or of one partition. They are empty if it does not exist. Subscriptions of readers are left
// out: the broker keeps no message for them, and one is there for moments after the doctor has tried to connect.
func (a *Admin) Stats(ctx context.Context, topic string) (stats TopicStats, err error) {
	err = a.do(ctx, http.MethodGet, a.topic(topic)+"/stats", "", &stats)
	if answer.IsStatus(err, http.StatusNotFound) {
		return TopicStats{}, nil
	}
	maps.DeleteFunc(stats.Subscriptions, func(_ string, s *SubscriptionStats) bool { return s.Durable != nil && !*s.Durable })
	return stats, err
}

// topic returns the path of a topic in the API. The broker decodes names like form values ("+" is a blank).
func (a *Admin) topic(name string) string {
	return "/persistent/" + a.namespace + "/" + url.QueryEscape(name)
}

// ListTopics returns the names of all persistent topics. Partitions are not listed by themselves.
func (a *Admin) ListTopics(ctx context.Context) ([]string, error) {
	var partitioned, plain []string
	if err := a.do(ctx, http.MethodGet, "/persistent/"+a.namespace+"/partitioned", "", &partitioned); err != nil {
		return nil, err
	}
	if err := a.do(ctx, http.MethodGet, "/persistent/"+a.namespace, "", &plain); err != nil {
		return nil, err
	}
	// The second list has partitions as topics of their own. They are left out if their topic is in the first list.
	prefix := "persistent://" + a.namespace + "/"
	var names []string
	for _, full := range append(partitioned, plain...) {
		name, ours := strings.CutPrefix(full, prefix)
		base, _, isPartition := strings.Cut(name, partitionMark)
		if ours && (!isPartition || !slices.Contains(partitioned, prefix+base)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
