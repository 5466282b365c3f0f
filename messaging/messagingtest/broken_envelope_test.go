package messagingtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"
	"unicode"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

var errBroken = errors.New("broken on purpose")

// sends makes an adapter send something else than it gets.
func sends(change func(e *event.Envelope)) fault {
	return fault{publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
		changed := make([]event.Envelope, len(msgs))
		for i, e := range msgs {
			e.Metadata = e.Metadata.Clone()
			change(&e)
			changed[i] = e
		}
		return a.memory.Publish(ctx, changed)
	}}
}

// hands has an adapter hand out something else than it got.
func hands(change func(r *receiver, m *messaging.Message)) fault {
	return fault{receive: func(ctx context.Context, r *receiver) (*messaging.Message, error) {
		m, err := r.next(ctx)
		if err == nil {
			change(r, m)
		}
		return m, err
	}}
}

func metadata(change func(key, value string) (string, string)) fault {
	return sends(func(e *event.Envelope) {
		changed := event.Metadata{}
		for k, v := range e.Metadata {
			k, v = change(k, v)
			if k != "" {
				changed[k] = v
			}
		}
		e.Metadata = changed
	})
}

func brokenEnvelopes() map[string][]broken {
	return map[string][]broken{
		"envelope survives":              append(brokenFields(), brokenProperties()...),
		"envelopes survive side by side": brokenNeighbours(),
		"large envelope survives": {
			{
				name: "truncates", says: "four fifths of the limit: Payload",
				fault: sends(func(e *event.Envelope) { e.Payload = e.Payload[:min(len(e.Payload), 64<<10)] }),
			},
		},
		"number that no column takes": brokenNumbers(),
		"nobody shares memory":        brokenCopies(),
	}
}

func brokenFields() []broken {
	return []broken{
		{name: "milliseconds", says: "OccurredAt", fault: sends(func(e *event.Envelope) { e.OccurredAt = e.OccurredAt.Truncate(time.Millisecond) })},
		{name: "nanoseconds that overflow", says: "OccurredAt", fault: sends(func(e *event.Envelope) { e.OccurredAt = time.Unix(0, e.OccurredAt.UnixNano()) })},
		{name: "its own time zone", says: "zone of OccurredAt", fault: hands(func(_ *receiver, m *messaging.Message) {
			m.OccurredAt = m.OccurredAt.In(time.FixedZone("here", 3600))
		})},
		{
			name: "payloads are text", says: "every byte: Payload",
			fault: sends(func(e *event.Envelope) { e.Payload = bytes.ToValidUTF8(e.Payload, []byte("?")) }),
		},
		{name: "payloads are parsed", says: "JSON that must not be parsed: Payload", fault: sends(func(e *event.Envelope) {
			var compact bytes.Buffer
			if json.Compact(&compact, e.Payload) == nil {
				e.Payload = compact.Bytes()
			}
		})},
		{name: "payloads end at a zero", says: "Payload", fault: sends(func(e *event.Envelope) { e.Payload, _, _ = bytes.Cut(e.Payload, []byte{0}) })},
		{name: "no payload is null", says: "Payload", fault: sends(func(e *event.Envelope) {
			if len(e.Payload) == 0 {
				e.Payload = []byte("null")
			}
		})},
		{name: "every message has a key", says: "RoutingKey", fault: sends(func(e *event.Envelope) {
			if e.RoutingKey == "" {
				e.RoutingKey = "none"
			}
		})},
		{name: "the key is the aggregate's", says: "RoutingKey", fault: sends(func(e *event.Envelope) {
			if e.RoutingKey != "" {
				e.RoutingKey = e.AggregateID
			}
		})},
		{
			name: "numbers are floats", says: "largest numbers",
			fault: sends(func(e *event.Envelope) { e.AggregateVersion = int64(float32(e.AggregateVersion)) }),
		},
		{
			name: "identifiers are trimmed", says: "identifiers of every printable character",
			fault: sends(func(e *event.Envelope) { e.TenantID = strings.TrimSpace(e.TenantID) }),
		},
		{name: "identifiers of 200 bytes", says: "longest identifiers", fault: sends(func(e *event.Envelope) { e.Type = e.Type[:min(len(e.Type), 200)] })},
		{name: "identifiers are ASCII", says: "awkward strings", fault: sends(func(e *event.Envelope) {
			e.AggregateID = strings.Map(func(c rune) rune {
				if c > unicode.MaxASCII {
					return '?'
				}
				return c
			}, e.AggregateID)
		})},
		{name: "sends the delivery", says: "Delivery", fault: hands(func(_ *receiver, m *messaging.Message) { m.Delivery.MaxAttempts = 3 })},
		{name: "loses the ordering key", says: "Delivery.OrderingKey", fault: hands(func(_ *receiver, m *messaging.Message) { m.Delivery.OrderingKey = "" })},
		{name: "counts attempts from 0", says: "Attempt counts from 1", fault: hands(func(_ *receiver, m *messaging.Message) { m.Attempt-- })},
		{
			name: "the broker's name of the topic", says: "persistent://",
			fault: hands(func(_ *receiver, m *messaging.Message) { m.Topic = "persistent://" + m.Topic }),
		},
		{name: "neither a message nor an error", says: "neither a message nor an error", fault: fault{
			receive: func(ctx context.Context, r *receiver) (*messaging.Message, error) {
				_, err := r.next(ctx)
				return nil, err
			},
		}},
	}
}

func brokenProperties() []broken {
	return []broken{
		{name: "drops empty values", says: "Metadata", fault: metadata(func(k, v string) (string, string) {
			if v == "" {
				k = ""
			}
			return k, v
		})},
		{name: "keys without case", says: "Metadata", fault: metadata(func(k, v string) (string, string) { return strings.ToLower(k), v })},
		{name: "keys are trimmed", says: "Metadata", fault: metadata(func(k, v string) (string, string) { return strings.TrimSpace(k), v })},
		{name: "takes keys for its own", says: "metadata that looks like something else: Metadata", fault: metadata(func(k, v string) (string, string) {
			return strings.TrimPrefix(k, "ce_"), v
		})},
		{name: "values are headers", says: "Metadata", fault: metadata(func(k, v string) (string, string) {
			return k, strings.Map(func(c rune) rune {
				if unicode.IsControl(c) {
					return ' '
				}
				return c
			}, v)
		})},
		{name: "at most 400 properties", says: "many keys: Metadata", fault: sends(func(e *event.Envelope) {
			for k := range e.Metadata {
				if len(e.Metadata) > 400 {
					delete(e.Metadata, k)
				}
			}
		})},
		{name: "values of 32 KiB", says: "full metadata: Metadata", fault: metadata(func(k, v string) (string, string) { return k, v[:min(len(v), 32<<10)] })},
		{name: "no metadata at all", says: "Metadata can be written to", fault: hands(func(_ *receiver, m *messaging.Message) {
			if len(m.Metadata) == 0 {
				m.Metadata = nil
			}
		})},
	}
}

func brokenNeighbours() []broken {
	return []broken{
		{name: "properties of the first of a batch", says: "Metadata", fault: fault{
			publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
				batch := append([]event.Envelope{}, msgs...)
				for i := range batch {
					batch[i].Metadata = batch[0].Metadata
				}
				return a.memory.Publish(ctx, batch)
			},
		}},
		{name: "drops what is empty of a batch", says: "deadline exceeded", fault: fault{
			publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
				var batch []event.Envelope
				for _, e := range msgs {
					if len(e.Payload) > 0 {
						batch = append(batch, e)
					}
				}
				return a.memory.Publish(ctx, batch)
			},
		}},
	}
}

func brokenNumbers() []broken {
	passed := sends(func(e *event.Envelope) { e.SchemaVersion = 1 })
	passed.receive = hands(func(_ *receiver, m *messaging.Message) { m.SchemaVersion = math.MaxInt64 }).receive
	return []broken{
		{name: "hands out what was sent", says: "no column takes", fault: passed},
		{name: "asks for another try", says: "not for good", fault: fault{publish: func(context.Context, *adapter, []event.Envelope) error {
			return &messaging.PublishError{Failed: map[int]error{0: errBroken}}
		}}},
	}
}

func brokenCopies() []broken {
	// shared keeps the first copy of each message that which chooses, and hands it out every time.
	shared := func(which func(r *receiver) *[]event.Envelope) fault {
		return hands(func(r *receiver, m *messaging.Message) {
			r.a.mu.Lock()
			defer r.a.mu.Unlock()
			copies := which(r)
			for _, e := range *copies {
				if e.ID == m.ID {
					m.Metadata, m.Payload = e.Metadata, e.Payload
					return
				}
			}
			*copies = append(*copies, m.Envelope)
		})
	}
	publishers := shared(func(r *receiver) *[]event.Envelope { return &r.a.kept })
	publishers.publish = func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
		a.kept = append(a.kept, msgs...)
		return a.memory.Publish(ctx, msgs)
	}
	return []broken{
		{name: "keeps what the publisher has", says: "first subscription", fault: publishers},
		{name: "one copy for all subscriptions", says: "second subscription", fault: shared(func(r *receiver) *[]event.Envelope { return &r.a.kept })},
		{name: "one copy for all deliveries", says: "second delivery", fault: shared(func(r *receiver) *[]event.Envelope { return &r.copies })},
	}
}
