package topics

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
)

// State returns the number of messages that wait for a subscription, and of its consumers. Messages counts entries, and a batch is one entry, so there are at
// least that many. Pulsar does not keep the number of messages: getPreciseBacklog makes the number of entries exact, avgMessagesPerEntry is about what a
// consumer received before, and analyze-backlog reads all entries. A subscription that does not exist has Missing set and no error.
func (a *Admin) State(ctx context.Context, topic, name string) (s messaging.SubscriptionState, err error) {
	parts, err := a.Backlogs(ctx, topic, name)
	if err != nil && !answer.IsStatus(err, http.StatusNotFound) {
		return s, fmt.Errorf("pulsar: ask the admin API for subscription %q of topic %q: %w", name, topic, err)
	}
	s.Missing = len(parts) == 0
	// A consumer is connected to several partitions, so its name is counted once.
	connected := map[string]bool{}
	for _, part := range parts {
		s.Messages += part.Waiting
		// Both times only have to change when something was settled. lastAcked is known for
		// the present consumers only, lastAdvanced for all.
		s.Settled = max(s.Settled, part.LastAcked, part.LastAdvanced)
		if part.Waiting > 0 && len(part.Consumers) == 0 {
			s.Unattended++
		}
		for _, c := range part.Consumers {
			connected[c.Name] = true
		}
	}
	s.Consumers, s.AtLeast = len(connected), s.Messages > 0
	return s, nil
}

// Backlog is the state of a subscription at one partition.
type Backlog struct {
	Waiting      int64  `json:"msgBacklog"`                      //nolint:tagliatelle // Pulsar's
	Active       string `json:"activeConsumerName"`              //nolint:tagliatelle // Pulsar's
	LastAcked    int64  `json:"lastAckedTimestamp"`              //nolint:tagliatelle // Pulsar's: by one of the present consumers, in milliseconds
	LastAdvanced int64  `json:"lastMarkDeleteAdvancedTimestamp"` //nolint:tagliatelle // Pulsar's: by any

	Consumers []struct {
		Name    string `json:"consumerName"`     //nolint:tagliatelle // Pulsar's
		Permits int    `json:"availablePermits"` //nolint:tagliatelle // Pulsar's
	} `json:"consumers"`

	Partition int32 `json:"-"`
}

// Backlogs returns the backlogs of all partitions.
func (a *Admin) Backlogs(ctx context.Context, topic, subscription string) ([]Backlog, error) {
	type stats struct {
		Subscriptions map[string]Backlog `json:"subscriptions"`
	}
	var all struct {
		Partitions map[string]stats `json:"partitions"`
	}
	// Without getPreciseBacklog the broker computes the backlog from counters, which may stay wrong for ever.
	const precise = "getPreciseBacklog=true&subscriptionBacklogSize=false"
	err := a.do(ctx, http.MethodGet, a.topic(topic)+"/partitioned-stats?perPartition=true&"+precise, "", &all)
	// The broker answers 404 here for a topic without partitions.
	if answer.IsStatus(err, http.StatusNotFound) {
		var alone stats
		err = a.do(ctx, http.MethodGet, a.topic(topic)+"/stats?"+precise, "", &alone)
		all.Partitions = map[string]stats{topic: alone}
	}
	if err != nil {
		return nil, err
	}
	// Partitions without the subscription are left out: a declaration may have reached only some of them.
	var out []Backlog
	for name, part := range all.Partitions {
		if s, ok := part.Subscriptions[subscription]; ok {
			_, number, _ := strings.Cut(name, partitionMark)
			n, _ := strconv.ParseInt(number, 10, 32) // a topic without partitions is the first
			s.Partition = int32(n)
			out = append(out, s)
		}
	}
	return out, nil
}

// MayGetNothing reports whether the broker has no permit to send messages to a consumer.
func (s *Backlog) MayGetNothing(consumer string) bool {
	for _, c := range s.Consumers {
		if c.Name == consumer {
			return c.Permits <= 0
		}
	}
	return false
}
