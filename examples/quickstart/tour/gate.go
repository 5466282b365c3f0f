package tour

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/brokers"
)

// gate stands before the broker. It remembers what was published, and refuses events when the story wants that.
type gate struct {
	brokers.Connection

	mu        sync.Mutex
	refuses   func(event.Envelope) error // nil: nothing
	published []event.Envelope
}

// refuse makes the broker refuse events for which why returns an error; nil ends it.
func (g *gate) refuse(why func(event.Envelope) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuses = why
}

// messages returns the events that the broker has confirmed.
func (g *gate) messages() []event.Envelope {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.published)
}

// Publish implements [messaging.Publisher]. Each order of the story has a key of its own, so a refused event holds up no other.
func (g *gate) Publish(ctx context.Context, msgs []event.Envelope) error {
	g.mu.Lock()
	refuses := g.refuses
	g.mu.Unlock()
	failed := map[int]error{}
	var sent []event.Envelope
	var places []int // of the sent events in msgs
	for n := range msgs {
		if refuses != nil {
			if err := refuses(msgs[n]); err != nil {
				failed[n] = err
				continue
			}
		}
		sent, places = append(sent, msgs[n]), append(places, n)
	}
	err := g.Connection.Publish(ctx, sent)
	partly, some := errors.AsType[*messaging.PublishError](err)
	if err != nil && !some {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for n, place := range places {
		if some && partly.Failed[n] != nil {
			failed[place] = partly.Failed[n]
			continue
		}
		g.published = append(g.published, msgs[place])
	}
	if len(failed) > 0 {
		return &messaging.PublishError{Failed: failed}
	}
	return nil
}

// Declare implements [messaging.Declarer]: some brokers keep messages only for subscriptions that exist.
func (g *gate) Declare(ctx context.Context, topics []string, subscriptions []messaging.Subscription) error {
	if d, ok := g.Connection.(messaging.Declarer); ok {
		return d.Declare(ctx, topics, subscriptions)
	}
	return nil
}
