package pulsar

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/topics"
)

// Publish implements [messaging.Publisher]. Topics are sent side by side. A call takes no longer than Config.PublishTimeout, whatever ctx
// allows. Pulsar's client may still read messages that Publish reports as [messaging.ErrUnknown]: do not change their payloads.
func (b *Broker) Publish(ctx context.Context, msgs []event.Envelope) error {
	if len(msgs) == 0 {
		return nil
	}
	if err := b.enter("publish"); err != nil {
		return err
	}
	defer b.calls.Done()
	ctx, cancel := context.WithTimeout(ctx, b.cfg.PublishTimeout)
	defer cancel()
	defer context.AfterFunc(b.open, cancel)()

	t := b.telemetry.Instruments()
	began := time.Now()
	ctx, span := t.Start(ctx, len(msgs))
	defer span.End()
	failed := b.publish(ctx, msgs)
	return t.End(ctx, msgs, failed, began)
}

// publish publishes the messages, topics at the same time. It returns the errors by the index in msgs.
func (b *Broker) publish(ctx context.Context, msgs []event.Envelope) map[int]error {
	byTopic := map[string][]int{}
	if err := b.start.wait(ctx, "publish"); err != nil {
		failed := map[int]error{}
		for i := range msgs {
			failed[i] = err
		}
		return failed
	}
	for i := range msgs {
		byTopic[msgs[i].Topic] = append(byTopic[msgs[i].Topic], i)
	}
	if len(byTopic) == 1 {
		return b.publishTopic(ctx, msgs[0].Topic, msgs, byTopic[msgs[0].Topic])
	}
	var (
		mu     sync.Mutex
		failed = map[int]error{}
		under  sync.WaitGroup
	)
	// Side by side, so that a topic that hangs does not delay the others.
	for name, indexes := range byTopic {
		under.Go(func() {
			errs := b.publishTopic(ctx, name, msgs, indexes)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(failed, errs)
		})
	}
	under.Wait()
	return failed
}

// publishTopic sends the messages at these indexes, which belong to one topic.
func (b *Broker) publishTopic(ctx context.Context, name string, msgs []event.Envelope, indexes []int) map[int]error {
	t, err := b.topic(name)
	if err != nil {
		return all(indexes, err)
	}
	p, err := t.checkOut(ctx)
	if err != nil {
		return all(indexes, err)
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

// all returns one error for all messages of a call.
func all(indexes []int, err error) map[int]error {
	failed := make(map[int]error, len(indexes))
	for _, i := range indexes {
		failed[i] = err
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
