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

// AsStored returns m in the form that it would have after being parked and read again, so that a handler sees the same on each try. This is
// m itself for messages that oncebox has sent, and may be a changed copy for messages of other programs: they may have no tenant, names
// that cannot be stored, and nanoseconds.
func AsStored(m *messaging.Message, unordered bool) *messaging.Message {
	if isAsStored(&m.Envelope, unordered) {
		return m
	}
	return Stored(m, unordered)
}

// Stored returns a message as it would come back from the table. A handler then sees the same on the first
// try as on a retry from the database.
func Stored(m *messaging.Message, unordered bool) *messaging.Message {
	e := m.Envelope
	if e.TenantID == "" {
		e.TenantID = DefaultTenantID
	}
	for n := range columns {
		if free := columns[n].free; free != nil {
			*free(&e) = readable(*free(&e))
		}
	}
	e.SchemaVersion = storedVersion(e.SchemaVersion)
	e.OccurredAt = time.Time{}
	if t := Storable(m.OccurredAt); t != nil {
		e.OccurredAt = *t
	}
	e.Payload = notNil(e.Payload)
	out := *m
	out.Envelope = e
	e.Delivery = event.Delivery{OrderingKey: givenKey(KeyOf(&out, unordered), &e)}
	if e.Metadata == nil || !isText(e.Metadata) {
		e.Metadata = throughJSON(e.Metadata)
	}
	out.Envelope = e
	return &out
}

// isAsStored reports whether AsStored has nothing to change. It runs for each message, so it allocates nothing.
func isAsStored(e *event.Envelope, unordered bool) bool {
	given := event.Delivery{OrderingKey: e.Delivery.OrderingKey}
	if unordered {
		given = event.Delivery{}
	}
	for n := range columns {
		if free := columns[n].free; free != nil && !isReadable(*free(e)) {
			return false
		}
	}
	return e.TenantID != "" && (e.AggregateID != "" || e.RoutingKey == "") && e.Delivery == given && e.SchemaVersion == storedVersion(e.SchemaVersion) &&
		isStorable(e.OccurredAt) && e.Payload != nil && e.Metadata != nil && isText(e.Metadata)
}

// storedVersion is the schema version as the tables have it.
func storedVersion(v int) int { return min(max(v, 1), math.MaxInt32) }

// givenKey returns the explicit ordering key of a message, derived from the key that it is stored with: "" without order. If there is no
// aggregate, the routing key counts as an explicit key.
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

// isText reports whether JSON keeps keys and values as they are.
func isText(md event.Metadata) bool {
	for key, value := range md {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return false
		}
	}
	return true
}

// throughJSON returns md after encoding it as JSON, as the table stores it, and decoding it.
func throughJSON(md event.Metadata) event.Metadata {
	out := event.Metadata{}
	if text, err := json.Marshal(md.Clone()); err == nil {
		_ = json.Unmarshal(text, &out) // JSON that was just made
	}
	return out
}

// KeyOf returns the ordering key of m, "" if m has no order.
func KeyOf(m *messaging.Message, unordered bool) string {
	if unordered {
		return ""
	}
	return m.OrderingKey()
}
