package memory

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
)

// topic is a list of messages, and the subscriptions that read it.
type topic struct {
	broker        *Broker
	name          string
	log           []*entry // the kept messages, oldest first
	next          uint64   // the position that the next message gets
	subscriptions map[string]*subscription
	told, warned  bool // the log has one line each: the topic has no consumer, and messages are dropped
}

// entry is one message of a topic.
type entry struct {
	env       event.Envelope
	position  uint64
	hash      uint32 // of the routing key; messages without a key are spread evenly
	at        time.Time
	unsettled int // number of subscriptions that have not settled it; a redelivery counts again
}

// append adds a message to the log and to each subscription. The caller holds the mutex of the broker.
func (t *topic) append(env event.Envelope) {
	e := &entry{env: env, position: t.next, hash: hash(env.RoutingKey), at: time.Now()}
	if env.RoutingKey == "" {
		e.hash = uint32(t.next) //nolint:gosec // any number will do
	}
	t.next++
	t.log = append(t.log, e)
	for _, s := range t.subscriptions {
		s.add(e)
	}
	t.trim()
}

// trim drops the oldest messages that all subscriptions have settled, down to Config.Retain. It drops nothing if that is 0.
func (t *topic) trim() {
	retain := t.broker.cfg.Retain
	if retain == 0 {
		return
	}
	for len(t.log) > retain && t.log[0].unsettled == 0 {
		if len(t.subscriptions) == 0 && !t.warned {
			t.warned = true
			t.broker.log.Warn("oncebox: memory: a topic has more messages than Config.Retain and no subscription; its oldest messages are "+
				"dropped unread", "topic", t.name, "retain", retain)
		}
		t.log[0] = nil
		t.log = t.log[1:]
	}
}

// subscription returns the subscription that s names. A new one begins at the earliest message that the topic still has.
func (t *topic) subscription(s messaging.Subscription) (*subscription, error) {
	sub, ok := t.subscriptions[s.Name]
	if !ok {
		sub = &subscription{topic: t, owner: adapters.Owner{Source: s.Source, Installation: s.Installation}}
		sub.become(s.Type)
		t.subscriptions[s.Name] = sub
		for _, e := range t.log {
			sub.add(e)
		}
		return sub, nil
	}
	if err := t.admit(s); err != nil {
		return nil, err
	}
	if sub.kind != s.Type {
		if len(sub.receivers) > 0 {
			return nil, fmt.Errorf("memory: subscribe: consumers use subscription %q of topic %q as %s, so it cannot be used as %s: give all of "+
				"them the same type", s.Name, t.name, sub.kind, s.Type)
		}
		sub.become(s.Type)
	}
	sub.owner = adapters.Owner{Source: cmp.Or(sub.owner.Source, s.Source), Installation: cmp.Or(sub.owner.Installation, s.Installation)}
	return sub, nil
}

// admit returns a permanent error if the subscription exists and belongs to another service, or to another database of this one.
func (t *topic) admit(s messaging.Subscription) error {
	sub := t.subscriptions[s.Name]
	if sub == nil {
		return nil
	}
	return sub.owner.Admits(s, nil)
}

// hash is FNV-1a. It only has to be equal for equal keys and to spread others.
func hash(key string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return h.Sum32()
}

// clone copies everything that a handler could change, and leaves out what does not travel over a network, so that
// tests here see what they would see with Pulsar.
func clone(env *event.Envelope) event.Envelope {
	c := *env
	c.Delivery = event.Delivery{OrderingKey: env.Delivery.OrderingKey} // the other fields are for the sender only and do not travel
	c.OccurredAt = env.OccurredAt.UTC()
	c.Metadata = env.Metadata.Clone()
	// A payload is never nil after its way over a network.
	c.Payload = append([]byte{}, env.Payload...)
	return c
}

// size estimates the size of the message on a network, in bytes.
func size(env *event.Envelope) int {
	n := len(env.Payload) + len(env.RoutingKey)
	for _, s := range []string{
		env.ID, env.Type, env.Source, env.SchemaID, env.TenantID, env.AggregateType, env.AggregateID, env.ContentType, env.Delivery.OrderingKey,
	} {
		n += len(s)
	}
	for k, v := range env.Metadata {
		n += len(k) + len(v)
	}
	return n
}
