package kafka

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/kafka/internal/topics"
	"github.com/oncebox/oncebox/messaging/wire"
)

// topic is what the publisher knows of a topic. It is looked up at its first use, and again after a failure.
type topic struct {
	name, full string
	id         [16]byte
	limit      int // the size of the largest message
	// partitions is over how many partitions the keys are spread. It stays as it was at the first use, until this process ends: if partitions are
	// added, each producer would learn it at another moment, and a key would go back and forth.
	partitions int
	turn       atomic.Uint32 // of messages without a key
	careful    atomic.Bool   // the broker has refused a batch; each message is sent by itself, to find which one it refuses
	stale      atomic.Bool   // a message has failed, so the topic is looked up before the next call
}

// topic returns a topic that exists. It is made at its first use, if Config.Declare allows that. A topic that is deleted later is not made again by
// publishing: somebody had a reason to delete it.
func (b *Broker) topic(ctx context.Context, name string) (*topic, error) {
	known := b.known(name)
	if known != nil && !known.stale.Load() {
		return known, nil
	}
	if err := b.cfg.names().ValidateTopic(name); err != nil {
		return nil, messaging.Permanent(fmt.Errorf("kafka: topic %q: %w", name, err))
	}
	look := b.keeper.Ensure
	if known != nil {
		look = b.keeper.Look
	}
	found, err := look(ctx, name, topics.Write)
	if err != nil {
		return nil, err
	}
	limit, err := b.keeper.Inspect(ctx, name, found)
	if err != nil {
		return nil, err
	}
	if limit == 0 { // not known: the broker refuses what is too large
		limit = b.cfg.MaxMessageBytes
	}
	t := &topic{
		name: name, full: b.cfg.names().FullName(name), id: found.ID, limit: min(limit, b.cfg.MaxMessageBytes), partitions: found.Partitions,
	}
	if known == nil {
		first, _ := b.topics.LoadOrStore(name, t)
		return first.(*topic), nil //nolint:forcetypeassert // it holds nothing else
	}
	if t.id == known.id {
		t.partitions = min(known.partitions, t.partitions)
	}
	if t.limit == known.limit {
		t.careful.Store(known.careful.Load())
	} else {
		b.producers.renew() // the size of their batches is that of the former limit
	}
	if !b.topics.CompareAndSwap(name, known, t) {
		return b.known(name), nil // another call has looked it up
	}
	return t, nil
}

// known returns a topic that was used before; else nil.
func (b *Broker) known(name string) *topic {
	t, ok := b.topics.Load(name)
	if !ok {
		return nil
	}
	return t.(*topic) //nolint:forcetypeassert // it holds nothing else
}

// batchBytes returns the size of the largest batch of a topic.
func (b *Broker) batchBytes(full string) int32 {
	limit := b.cfg.MaxMessageBytes
	b.topics.Range(func(_, known any) bool {
		if t := known.(*topic); t.full == full { //nolint:forcetypeassert // it holds nothing else
			limit = t.limit
		}
		return true
	})
	return int32(max(limit, 512)) //nolint:gosec // Validate limits it
}

// isSmaller reports whether the topic's own limit refuses a message that the configuration allows.
func (t *topic) isSmaller(allowed int, env *event.Envelope) bool {
	return t.limit < allowed && sizeOf(t.record(env)) > t.limit
}

// record returns the message of Kafka for an event.
func (t *topic) record(env *event.Envelope) *kgo.Record {
	properties := format.Append(make([]wire.Property, 0, usual), env)
	size := len(env.RoutingKey)
	for _, p := range properties {
		size += len(p.Value)
	}
	text := make([]byte, 0, size) // of all headers and the key: one piece of memory in place of a dozen
	part := func(value string) []byte {
		from := len(text)
		text = append(text, value...)
		return text[from:len(text):len(text)]
	}
	r := &kgo.Record{Topic: t.full, Value: env.Payload, Headers: make([]kgo.RecordHeader, len(properties))}
	for n, p := range properties {
		r.Headers[n] = kgo.RecordHeader{Key: p.Name, Value: part(p.Value)}
	}
	if env.RoutingKey != "" {
		r.Key = part(env.RoutingKey)
	}
	if r.Value == nil {
		r.Value = []byte{} // null is a tombstone for tools that compact a topic
	}
	r.Partition = t.partition(r)
	return r
}

// usual is how many headers most messages have.
const usual = 16

// byKey spreads keys by murmur2, as all clients do.
var byKey = kgo.StickyKeyPartitioner(nil).ForTopic("") //nolint:gochecknoglobals // a function

// partition returns the partition of a message: that of its key; without a key each partition in turn.
func (t *topic) partition(r *kgo.Record) int32 {
	if r.Key == nil {
		return int32(t.turn.Add(1) % uint32(t.partitions)) //nolint:gosec // a topic has few partitions
	}
	return int32(byKey.Partition(r, t.partitions)) //nolint:gosec // a topic has few partitions
}
