package envelope

import (
	"strings"

	"github.com/oncebox/oncebox/event"
)

// StoredKey is the ordering key as an outbox row has it: "" for an event that waits for no other one, and no other one for it. That is
// also one whose key is its own id, as a delayed event has it. A row of such an event needs no lock, no block and no place behind
// others.
func StoredKey(e *event.Envelope) string {
	if e.AggregateID != "" && e.Delivery.OrderingKey == e.ID {
		return ""
	}
	return e.OrderingKey()
}

// GivenKey undoes [StoredKey]: it returns the [event.Delivery.OrderingKey] of a row. A row of an aggregate has no key only if its key
// is its own id.
func GivenKey(stored, aggregateID, id string) string {
	if stored == "" && aggregateID != "" {
		return id
	}
	return ExplicitKey(stored)
}

// ExplicitKey returns the ordering key that an event was given, of the value that event.Envelope.OrderingKey made of it, and ""
// if that was made of an aggregate. Both begin with the tenant; an explicit key follows it as the only other part.
func ExplicitKey(orderingKey string) string {
	key, found := behindPart(orderingKey)
	if _, more := behindPart(key); !found || more {
		return ""
	}
	if !strings.Contains(key, `\`) {
		return key
	}
	return strings.NewReplacer(`\\`, `\`, `\|`, `|`).Replace(key)
}

// behindPart returns what is behind the first "|" that is no part's own.
func behindPart(s string) (rest string, found bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++ // what it escapes
		case '|':
			return s[i+1:], true
		}
	}
	return "", false
}
