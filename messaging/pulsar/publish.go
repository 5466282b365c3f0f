package pulsar

import (
	"context"
	"fmt"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/topics"
)

// Publish implements [messaging.Publisher]. Topics are sent side by side. A call takes no longer than Config.PublishTimeout, whatever ctx
// allows. Pulsar's client may still read messages that Publish reports as [messaging.ErrUnknown]: do not change their payloads.
func (b *Broker) Publish(ctx context.Context, msgs []event.Envelope) error {
	ctx, leave, err := b.calls.Begin(ctx, b.open, "pulsar: publish", b.cfg.PublishTimeout)
	if err != nil {
		return err
	}
	defer leave()
	return b.telemetry.Instruments().Topics(ctx, msgs, b.publishTopic)
}

// publishTopic sends the messages at these indexes, which belong to one topic.
func (b *Broker) publishTopic(ctx context.Context, name string, msgs []event.Envelope, indexes []int) map[int]error {
	if err := b.start.Wait(ctx, "publish"); err != nil {
		return adapters.All(indexes, err)
	}
	t, err := b.topic(name)
	if err != nil {
		return adapters.All(indexes, err)
	}
	p, err := t.checkOut(ctx)
	if err != nil {
		return adapters.All(indexes, err)
	}
	t.audience.LookAgain()
	failed, sound := newFlight(p, t, b.cfg.MaxMessageBytes, msgs).run(ctx, indexes)
	if sound {
		t.giveBack(p)
	} else {
		t.retire(p)
	}
	return failed
}

// topic returns the producers of a topic, made at its first use. The error is that of all its messages: the name cannot be used.
func (b *Broker) topic(name string) (*topic, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t, ok := b.topics[name]; ok {
		return t, nil
	}
	if err := topics.ValidateTopic(name); err != nil {
		return nil, messaging.Permanent(fmt.Errorf("pulsar: topic %q: %w", name, err))
	}
	t := newTopic(b, name)
	b.topics[name] = t
	return t, nil
}
