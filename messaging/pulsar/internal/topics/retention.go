package topics

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
)

// Retention returns how long a topic may deliver a message again: the longer of two times, how long acknowledged messages are kept, and how
// long others are kept. 0: neither has a policy; -1: for ever. Without an admin API the error is errors.ErrUnsupported.
func (k *Keeper) Retention(ctx context.Context, topic string) (time.Duration, error) {
	if !k.HasAdmin(ctx) {
		return 0, errors.ErrUnsupported
	}
	retained, err := k.Admin.Retained(ctx, topic)
	if err != nil {
		return 0, err
	}
	lives, err := k.Admin.Expires(ctx, topic)
	if retained < 0 || err != nil {
		return retained, err
	}
	return max(lives, retained), nil
}

// retention is how long acknowledged messages are kept, up to a size. -1: without a limit.
type retention struct {
	Minutes int `json:"retentionTimeInMinutes"` //nolint:tagliatelle // Pulsar's
	MB      int `json:"retentionSizeInMB"`      //nolint:tagliatelle // Pulsar's
}

// Retained returns how long a topic keeps messages that all subscriptions have acknowledged, or that no subscription needs. 0: not at all;
// -1: without a limit.
func (a *Admin) Retained(ctx context.Context, topic string) (time.Duration, error) {
	var r *retention
	if err := a.policy(ctx, topic, "retention", &r); err != nil {
		return 0, err
	}
	switch {
	// Pulsar keeps messages up to both limits, so 0 in either means that nothing is kept.
	case r == nil, r.Minutes == 0, r.MB == 0:
		return 0, nil
	case r.Minutes < 0:
		return -1, nil
	default:
		return time.Duration(r.Minutes) * time.Minute, nil
	}
}

// Expires returns the age at which the broker drops a message that was not acknowledged. 0: never.
func (a *Admin) Expires(ctx context.Context, topic string) (time.Duration, error) {
	var seconds *int
	if err := a.policy(ctx, topic, "messageTTL", &seconds); err != nil || seconds == nil {
		return 0, err
	}
	return time.Duration(*seconds) * time.Second, nil
}

// Evicts reports whether the broker drops the oldest messages when the backlog is full, acknowledged or not.
func (a *Admin) Evicts(ctx context.Context, topic string) (bool, error) {
	var quotas map[string]struct {
		Policy string `json:"policy"`
	}
	err := a.policy(ctx, topic, "backlogQuotaMap", &quotas)
	// The map has a quota by size and one by time. Either may evict.
	for _, quota := range quotas {
		if quota.Policy == "consumer_backlog_eviction" {
			return true, nil
		}
	}
	return false, err
}

// policy reads a policy that applies to a topic: its own or that of its namespace.
func (a *Admin) policy(ctx context.Context, topic, name string, result any) error {
	err := a.do(ctx, http.MethodGet, a.topic(topic)+"/"+name+"?applied=true", "", result)
	// The policy of the namespace will apply to the topic when it is made.
	if answer.IsStatus(err, http.StatusNotFound) { // the topic does not exist yet
		err = a.do(ctx, http.MethodGet, "/namespaces/"+a.namespace+"/"+name, "", result)
	}
	return err
}
