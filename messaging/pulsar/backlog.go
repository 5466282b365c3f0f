package pulsar

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/oncebox/oncebox/messaging"
)

// errNoAdmin: only the admin API knows of backlogs.
var errNoAdmin = errors.New("pulsar: backlog: the admin API cannot be used; set Config.AdminURL (ONCEBOX_PULSAR_ADMIN_URL)")

// Backlog implements [messaging.BacklogReceiver] with the admin API. Messages counts entries: a batch is one.
func (r *receiver) Backlog(ctx context.Context) (messaging.Backlog, error) {
	b, topic := r.broker, r.subscription.Topic
	out := messaging.Backlog{Topic: topic}
	if r.isClosed() {
		return out, messaging.ErrClosed
	}
	if !b.hasAdmin(ctx) {
		return out, errNoAdmin
	}
	parts, err := b.admin.backlogs(ctx, topic, r.subscription.Name)
	if err != nil {
		return out, fmt.Errorf("pulsar: backlog of subscription %q of topic %q: %w", r.subscription.Name, topic, err)
	}
	r.lookForPermits(parts)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, part := range parts {
		if r.subscription.Type == messaging.Failover && part.Active != "" && part.Active != r.name {
			continue // another consumer's, which may be slow, or stand still itself
		}
		n := min(r.left.in(part.Partition), part.Backlog)
		out.Messages += part.Backlog - n
		out.Left += n
		out.Settled = max(out.Settled, part.LastAcked, part.LastAdvanced)
	}
	return out, nil
}

// ReadSubscription implements [messaging.SubscriptionReader] with the admin API. Messages counts entries: a batch is one.
func (b *Broker) ReadSubscription(ctx context.Context, topic, name string) (messaging.SubscriptionState, error) {
	if !b.hasAdmin(ctx) {
		return messaging.SubscriptionState{}, errNoAdmin
	}
	return b.admin.state(ctx, topic, name)
}

func (a *admin) state(ctx context.Context, topic, name string) (s messaging.SubscriptionState, err error) {
	parts, err := a.backlogs(ctx, topic, name)
	if err != nil && !isStatus(err, http.StatusNotFound) {
		return s, fmt.Errorf("pulsar: ask the admin API for subscription %q of topic %q: %w", name, topic, err)
	}
	s.Missing = len(parts) == 0
	connected := map[string]bool{}
	for _, part := range parts {
		s.Messages += part.Backlog
		s.Settled = max(s.Settled, part.LastAcked, part.LastAdvanced)
		if part.Backlog > 0 && len(part.Consumers) == 0 {
			s.Unattended++
		}
		for _, c := range part.Consumers {
			connected[c.Name] = true
		}
	}
	s.Consumers = len(connected)
	return s, nil
}

// backlogStats is what a partition knows about what waits for a subscription.
type backlogStats struct {
	Backlog      int64  `json:"msgBacklog"`                      //nolint:tagliatelle // Pulsar's
	Active       string `json:"activeConsumerName"`              //nolint:tagliatelle // Pulsar's
	LastAcked    int64  `json:"lastAckedTimestamp"`              //nolint:tagliatelle // Pulsar's: by one of the present consumers, in milliseconds
	LastAdvanced int64  `json:"lastMarkDeleteAdvancedTimestamp"` //nolint:tagliatelle // Pulsar's: by any

	Consumers []struct {
		Name    string `json:"consumerName"`     //nolint:tagliatelle // Pulsar's
		Permits int    `json:"availablePermits"` //nolint:tagliatelle // Pulsar's
	} `json:"consumers"`

	Partition int32 `json:"-"`
}

// backlogs returns those of all partitions.
func (a *admin) backlogs(ctx context.Context, topic, subscription string) ([]backlogStats, error) {
	type stats struct {
		Subscriptions map[string]backlogStats `json:"subscriptions"`
	}
	var all struct {
		Partitions map[string]stats `json:"partitions"`
	}
	// Without precision the broker adds up what was acknowledged since it has known the subscription, and may be wrong for ever.
	const precise = "getPreciseBacklog=true&subscriptionBacklogSize=false"
	err := a.do(ctx, http.MethodGet, a.topic(topic)+"/partitioned-stats?perPartition=true&"+precise, "", &all)
	if isStatus(err, http.StatusNotFound) {
		var alone stats
		err = a.do(ctx, http.MethodGet, a.topic(topic)+"/stats?"+precise, "", &alone)
		all.Partitions = map[string]stats{topic: alone}
	}
	if err != nil {
		return nil, err
	}
	var out []backlogStats
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
