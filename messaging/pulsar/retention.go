package pulsar

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/oncebox/oncebox/messaging"
)

// Retention returns how long a topic may bring a message again: for how long the broker keeps what was acknowledged, which a
// subscription that is reset gets once more, and for how long it keeps what was not. 0: neither has a policy; -1: for ever.
//
// It asks the admin API, and returns errors.ErrUnsupported where there is none.
func (b *Broker) Retention(ctx context.Context, topic string) (time.Duration, error) {
	if err := (messaging.Subscription{Topic: topic, Name: "none"}).Validate(); err != nil {
		return 0, err
	}
	if err := b.started(ctx, "retention"); err != nil {
		return 0, err
	}
	if !b.hasAdmin(ctx) {
		return 0, errors.ErrUnsupported
	}
	kept, err := b.admin.retention(ctx, topic)
	if err != nil {
		return 0, err
	}
	var seconds *int
	if err := b.admin.policy(ctx, topic, "messageTTL", &seconds); err != nil {
		return 0, err
	}
	var lives time.Duration
	if seconds != nil {
		lives = time.Duration(*seconds) * time.Second
	}
	switch {
	case kept == nil, kept.Minutes == 0, kept.MB == 0:
		return lives, nil
	case kept.Minutes < 0:
		return -1, nil
	default:
		return max(lives, time.Duration(kept.Minutes)*time.Minute), nil
	}
}

// retention is for how long, and up to what size, acknowledged messages are kept. -1: without a limit.
type retention struct {
	Minutes int `json:"retentionTimeInMinutes"` //nolint:tagliatelle // Pulsar's
	MB      int `json:"retentionSizeInMB"`      //nolint:tagliatelle // Pulsar's
}

func (a *admin) retention(ctx context.Context, topic string) (r *retention, err error) {
	err = a.policy(ctx, topic, "retention", &r)
	return r, err
}

// retains tells whether a topic keeps messages that no subscription waits for.
func (a *admin) retains(ctx context.Context, topic string) (bool, error) {
	r, err := a.retention(ctx, topic)
	return r != nil && r.Minutes != 0 && r.MB != 0, err
}

// policy asks for a policy that applies to a topic, be it its own or its namespace's.
func (a *admin) policy(ctx context.Context, topic, name string, result any) error {
	err := a.do(ctx, http.MethodGet, a.topic(topic)+"/"+name+"?applied=true", "", result)
	if isStatus(err, http.StatusNotFound) { // it is about to be made
		err = a.do(ctx, http.MethodGet, "/namespaces/"+a.namespace+"/"+name, "", result)
	}
	return err
}
