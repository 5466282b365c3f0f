package topics

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
)

// State returns the number of messages that wait for a subscription, and of its consumers. The number is estimated, see sample. A subscription that does not
// exist has Missing set and no error.
func (a *Admin) State(ctx context.Context, topic, name string) (s messaging.SubscriptionState, err error) {
	var parts []Backlog
	for range 2 {
		parts, err = a.backlogs(ctx, topic, name, "&getEarliestTimeInBacklog=true")
		if err != nil && !answer.IsStatus(err, http.StatusNotFound) {
			return s, fmt.Errorf("pulsar: ask the admin API for subscription %q of topic %q: %w", name, topic, err)
		}
		waiting := newSample(a, name, parts)
		waiting.read(ctx)
		s.Messages, s.Precision = waiting.result()
		// Consumers that settle at once what comes may be faster than the sample. Then as a rule nothing waits any more.
		if !waiting.isOvertaken() {
			break
		}
	}
	s.Missing = len(parts) == 0
	// A consumer is connected to several partitions, so its name is counted once.
	connected := map[string]bool{}
	for _, part := range parts {
		if at := time.UnixMilli(part.Oldest); part.Waiting > 0 && part.Oldest > 0 && (s.Oldest.IsZero() || at.Before(s.Oldest)) {
			s.Oldest = at
		}
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
	s.Consumers = len(connected)
	return s, nil
}

// Backlog is the state of a subscription at one partition.
type Backlog struct {
	Waiting      int64  `json:"msgBacklog"`                      //nolint:tagliatelle // Pulsar's: entries; a batch is one
	Oldest       int64  `json:"earliestMsgPublishTimeInBacklog"` //nolint:tagliatelle // Pulsar's: in milliseconds, if it was asked for
	Active       string `json:"activeConsumerName"`              //nolint:tagliatelle // Pulsar's
	LastAcked    int64  `json:"lastAckedTimestamp"`              //nolint:tagliatelle // Pulsar's: by one of the present consumers, in milliseconds
	LastAdvanced int64  `json:"lastMarkDeleteAdvancedTimestamp"` //nolint:tagliatelle // Pulsar's: by any

	Consumers []struct {
		Name    string `json:"consumerName"`     //nolint:tagliatelle // Pulsar's
		Permits int    `json:"availablePermits"` //nolint:tagliatelle // Pulsar's
	} `json:"consumers"`

	Partition int32 `json:"-"`

	topic string // the name of the partition, that of the topic if it has none
}

// Backlogs returns the backlogs of all partitions, without the times of their oldest messages.
func (a *Admin) Backlogs(ctx context.Context, topic, subscription string) ([]Backlog, error) {
	return a.backlogs(ctx, topic, subscription, "")
}

func (a *Admin) backlogs(ctx context.Context, topic, subscription, more string) ([]Backlog, error) {
	type stats struct {
		Subscriptions map[string]Backlog `json:"subscriptions"`
	}
	var all struct {
		Partitions map[string]stats `json:"partitions"`
	}
	// Without getPreciseBacklog the broker computes the backlog from counters, which may stay wrong for ever.
	precise := "getPreciseBacklog=true&subscriptionBacklogSize=false" + more
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
			s.Partition, s.topic = int32(n), name[strings.LastIndex(name, "/")+1:]
			out = append(out, s)
		}
	}
	// Always the same order, so that two samples of one backlog give the same number.
	slices.SortFunc(out, func(a, b Backlog) int { return cmp.Compare(a.Partition, b.Partition) })
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
