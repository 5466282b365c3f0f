package store

import (
	"encoding/json"
	"math"
	"time"
	"unicode/utf8"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/messaging"
)

// AsStored returns m as a parked message of the consumer is read again, so that a handler sees the same on each try: m itself if it is like that,
// as what oncebox sends is, else a copy. A message of another program may have no tenant, names that cannot be stored and nanoseconds.
func AsStored(m *messaging.Message, unordered bool) *messaging.Message {
	if isAsStored(&m.Envelope, unordered) {
		return m
	}
	return Stored(m, unordered)
}

func Stored(m *messaging.Message, unordered bool) *messaging.Message {
	e := m.Envelope
	if e.TenantID == "" {
		e.TenantID = DefaultTenant
	}
	e.RoutingKey, e.ContentType = readable(e.RoutingKey), readable(e.ContentType)
	e.SchemaVersion = storedVersion(e.SchemaVersion)
	e.OccurredAt = time.Time{}
	if t := storable(m.OccurredAt); t != nil {
		e.OccurredAt = *t
	}
	if e.Payload == nil {
		e.Payload = []byte{}
	}
	out := *m
	out.Envelope = e
	e.Delivery = event.Delivery{OrderingKey: givenKey(KeyOf(&out, unordered), &e)}
	if e.Metadata == nil || !isText(e.Metadata) {
		e.Metadata = throughJSON(e.Metadata)
	}
	out.Envelope = e
	return &out
}

// isAsStored says that asStored has nothing to change. It is asked for each message, so it makes nothing.
func isAsStored(e *event.Envelope, unordered bool) bool {
	given := event.Delivery{OrderingKey: e.Delivery.OrderingKey}
	if unordered {
		given = event.Delivery{}
	}
	return e.TenantID != "" && (e.AggregateID != "" || e.RoutingKey == "") && e.Delivery == given &&
		isReadable(e.RoutingKey) && isReadable(e.ContentType) && e.SchemaVersion == storedVersion(e.SchemaVersion) &&
		isStorable(e.OccurredAt) && e.Payload != nil && e.Metadata != nil && isText(e.Metadata)
}

// storedVersion is the schema version as the tables have it.
func storedVersion(v int) int { return min(max(v, 1), math.MaxInt32) }

// givenKey returns the ordering key that a message was given, of the key that it is stored with: "" without order. A routing key counts as one where there
// is no aggregate.
func givenKey(stored string, e *event.Envelope) string {
	switch {
	case stored != "":
		return envelope.ExplicitKey(stored)
	case e.AggregateID == "":
		return e.RoutingKey
	default:
		return ""
	}
}

// isText tells whether JSON keeps keys and values as they are.
func isText(md event.Metadata) bool {
	for key, value := range md {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return false
		}
	}
	return true
}

// throughJSON returns md as JSON has it, in which it is stored.
func throughJSON(md event.Metadata) event.Metadata {
	out := event.Metadata{}
	if text, err := json.Marshal(md.Clone()); err == nil {
		_ = json.Unmarshal(text, &out) // JSON that was just made
	}
	return out
}

// KeyOf is the key that m is ordered by, "" if it is not.
func KeyOf(m *messaging.Message, unordered bool) string {
	if unordered {
		return ""
	}
	return m.OrderingKey()
}
