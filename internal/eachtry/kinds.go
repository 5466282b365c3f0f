// Package eachtry has messages of each kind, and compares what handlers see of them from try to try.
package eachtry

import (
	"math"
	"strings"
	"time"

	"github.com/oncebox/oncebox/event"
)

// Kinds returns messages of oncebox and of other programs, as brokers deliver them, named after their peculiarity. The
// id of each is its name, except where the id is the peculiarity. No two of them have the same ordering key.
func Kinds() map[string]event.Envelope {
	of := func(change func(*event.Envelope)) event.Envelope {
		e := event.Envelope{Type: "t", Source: "s", Topic: "order"}
		change(&e)
		return e
	}
	kinds := map[string]event.Envelope{
		"bare":                of(func(*event.Envelope) {}),
		"a key":               of(func(e *event.Envelope) { e.RoutingKey = "k" }),
		"a key with NUL":      of(func(e *event.Envelope) { e.RoutingKey, e.ContentType = "a\x00b\xff", "text/\x00\xfe" }),
		"a key of 1000 bytes": of(func(e *event.Envelope) { e.RoutingKey = strings.Repeat("ä|\\", 200) }),
		"an empty payload":    of(func(e *event.Envelope) { e.Payload = []byte{} }),
		"bytes":               of(func(e *event.Envelope) { e.Payload = []byte("\x00\xff") }),
		"nanoseconds elsewhere": of(func(e *event.Envelope) {
			e.OccurredAt = time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.FixedZone("CET", 3600))
		}),
		"before 1970":           of(func(e *event.Envelope) { e.OccurredAt = time.Date(1815, 12, 10, 0, 0, 0, 1999, time.UTC) }),
		"a time of no calendar": of(func(e *event.Envelope) { e.OccurredAt = time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC) }),
		"strange versions": of(func(e *event.Envelope) {
			e.SchemaVersion, e.Sequence, e.AggregateVersion = math.MaxInt64, math.MaxInt64, 7
		}),
		"strange metadata": of(func(e *event.Envelope) {
			e.Metadata = event.Metadata{"nul": "a\x00b", "not\xff\xfeUTF-8": "\xff\xfe", "<&>\u2028": "<&>\u2028", "": ""}
		}),
		"an aggregate": of(func(e *event.Envelope) { e.AggregateType, e.AggregateID, e.RoutingKey = "o|1", `a\b`, "o1" }),
		"an aggregate without type, with a tenant": of(func(e *event.Envelope) { e.AggregateID, e.TenantID = "o1", "t|1" }),
		"an aggregate and a key": of(func(e *event.Envelope) {
			e.AggregateType, e.AggregateID, e.RoutingKey, e.Delivery.OrderingKey, e.TenantID = "order", "o1", "x|y", "x|y", "t1"
		}),
		"a key and another routing key": of(func(e *event.Envelope) { e.RoutingKey, e.Delivery.OrderingKey = "r", `o\` }),
		"what only its sender needs": of(func(e *event.Envelope) {
			e.Delivery = event.Delivery{OrderingKey: "own", DedupKey: "d", NotBefore: time.Now(), ExpiresAt: time.Now(), MaxAttempts: 3}
		}),
		"own": of(func(e *event.Envelope) {
			e.ID, e.TenantID, e.AggregateType, e.AggregateID, e.RoutingKey = "0198c0de-0000-7000-8000-000000000001", "t1", "order", "o1", "o1"
			e.SchemaID, e.SchemaVersion, e.Sequence, e.AggregateVersion, e.ContentType = "urn:x", 2, 17, 3, "application/json"
			e.OccurredAt, e.Payload = time.Date(2026, 1, 2, 3, 4, 5, 123456000, time.UTC), []byte(`{"a":1}`)
			e.Metadata = event.Metadata{event.CorrelationID: "c", "x": "y"}
		}),
	}
	for kind, e := range kinds {
		if e.ID == "" {
			e.ID = kind
			kinds[kind] = e
		}
	}
	return kinds
}
