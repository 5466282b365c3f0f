package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/nats/internal/streams"
)

// ReadSubscription implements [messaging.SubscriptionReader]. Consumers counts the partitions that somebody reads.
func (b *Broker) ReadSubscription(ctx context.Context, topic, name string) (messaging.SubscriptionState, error) {
	var out messaging.SubscriptionState
	if err := b.start.Wait(ctx, "read subscription"); err != nil {
		return out, err
	}
	st, err := b.keeper.Existing(ctx, topic)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return messaging.SubscriptionState{Missing: true}, nil
	}
	if err != nil {
		return out, fmt.Errorf("nats: read subscription %q of topic %q: %w", name, topic, err)
	}
	names := []string{b.Shared(name)}
	for p := range st.Partitions {
		names = append(names, b.Consumer(name, p))
	}
	out.Missing = true
	for _, consumer := range names {
		c, err := b.session.Consumer(ctx, st.Name, consumer)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			continue
		}
		if err != nil {
			return messaging.SubscriptionState{}, fmt.Errorf("nats: read subscription %q of topic %q: %w", name, topic, err)
		}
		out.Missing = false
		info := c.CachedInfo()
		waiting := streams.Waiting(info)
		out.Messages += waiting
		out.Settled += streams.Settled(info)
		switch {
		case streams.IsRead(info):
			out.Consumers++
		case waiting > 0:
			out.Unattended++
		}
	}
	return out, nil
}

// Retention implements [messaging.RetentionReader].
func (b *Broker) Retention(ctx context.Context, topic string) (time.Duration, error) {
	if err := b.ValidateTopic(topic); err != nil {
		return 0, fmt.Errorf("nats: retention: %w", err)
	}
	if err := b.start.Wait(ctx, "retention"); err != nil {
		return 0, err
	}
	st, err := b.keeper.Existing(ctx, topic)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("nats: retention of topic %q: %w", topic, err)
	}
	if age := st.Handle.CachedInfo().Config.MaxAge; age > 0 {
		return age, nil
	}
	return -1, nil
}

// Unused implements [diagnosis.UseReader]. The server numbers the messages of a stream, and it keeps the last number after the message. It does not know
// who will publish.
func (b *Broker) Unused(ctx context.Context, topic string) (bool, error) {
	if err := b.ValidateTopic(topic); err != nil {
		return false, fmt.Errorf("nats: read the use of a topic: %w", err)
	}
	if err := b.start.Wait(ctx, "read the use of a topic"); err != nil {
		return false, err
	}
	st, err := b.keeper.Existing(ctx, topic)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("nats: read the use of topic %q: %w", topic, err)
	}
	return st.IsUnused(), nil
}
