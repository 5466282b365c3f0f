package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

type publisher struct{ box *Inbox }

// Publish stores the messages. The messages of one topic are stored in one transaction for each consumer.
func (p *publisher) Publish(ctx context.Context, msgs []event.Envelope) error {
	failed := map[int]error{}
	topics := map[string][]int{}
	for n := range msgs {
		topics[msgs[n].Topic] = append(topics[msgs[n].Topic], n)
	}
	for topic, at := range topics {
		list := make([]*messaging.Message, len(at))
		for n := range at {
			list[n] = messaging.NewMessage(msgs[at[n]], 1, nil)
		}
		for n, err := range p.store(ctx, topic, list) {
			failed[at[n]] = errors.Join(failed[at[n]], err)
		}
	}
	if len(failed) > 0 {
		return &messaging.PublishError{Failed: failed}
	}
	return nil
}

// store stores the messages of a topic, and returns, by index, an error for each message that was not stored for all consumers of the
// topic.
func (p *publisher) store(ctx context.Context, topic string, msgs []*messaging.Message) map[int]error {
	failed := map[int]error{}
	fail := func(n int, consumer string, err error) {
		// It may be stored all the same: perhaps only the answer to the COMMIT was lost.
		failed[n] = errors.Join(failed[n], fmt.Errorf("%w: store a message for consumer %q: %w", messaging.ErrUnknown, consumer, err))
	}
	// The subscribers are read for each call, from a list that is refreshed each PollInterval: a consumer may be new.
	all, err := p.box.process.Subscribers(ctx, topic)
	if err != nil {
		for n := range msgs {
			fail(n, "", err)
		}
		return failed
	}
	if len(all) == 0 && p.box.first(logged{topic: topic, eventType: msgs[0].Type}) {
		p.box.store.Log.WarnContext(ctx, "oncebox: events of this type are sent and no consumer handles them, because none is subscribed to their topic: "+
			"have a process consume it (App.Consume), which handles what is sent from then on", "topic", topic, "type", msgs[0].Type, "id", msgs[0].ID)
	}
	for _, s := range all {
		err := p.storing(Subscription(s)).HandleBatch(ctx, msgs)
		if err == nil {
			continue
		}
		// A batch that failed as a whole may have been stored in part, so every message of it is reported. Storing it again is harmless: it is a duplicate.
		some, ok := errors.AsType[*messaging.BatchError](err)
		for n := range msgs {
			switch {
			case !ok:
				fail(n, s.Consumer, err)
			case errors.Is(some.Failed[n], messaging.ErrBehind):
				failed[n] = messaging.ErrBehind
			case some.Failed[n] != nil:
				fail(n, s.Consumer, some.Failed[n])
			}
		}
	}
	return failed
}

// storing returns a handler that stores messages for a consumer.
func (p *publisher) storing(s Subscription) messaging.BatchHandler {
	p.box.mu.Lock()
	defer p.box.mu.Unlock()
	h, ok := p.box.stores[s]
	if !ok {
		opts := []Option{StoreFirst()}
		if p.box.process.IsUnordered(s.Topic, s.Consumer) {
			opts = append(opts, Unordered())
		}
		never := messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
			return fmt.Errorf("inbox: consumer %s is handled by RunParked", s.Consumer)
		})
		if s.ReadModel {
			h = &Generations{box: p.box, name: s.Consumer, next: never, opts: opts, elsewhere: true}
		} else {
			h = p.box.newWrapped(s.Consumer, never, nil, opts)
		}
		p.box.stores[s] = h
	}
	return h
}
