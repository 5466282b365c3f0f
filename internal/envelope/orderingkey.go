package envelope

import (
	"iter"
	"strings"

	"github.com/oncebox/oncebox/event"
)

// StoredKey returns the ordering key for a row of the outbox. It is "" for an event in no order, so that its row needs
// no lock, no block and no place behind others. An event whose key is its own id, as a delayed event has it, counts as
// such: no other event can have the same key.
func StoredKey(e *event.Envelope) string {
	if e.AggregateID != "" && e.Delivery.OrderingKey == e.ID {
		return ""
	}
	return e.OrderingKey()
}

// StoredKeys returns the place and the [StoredKey] of each event. Neighbours of one aggregate, as most events of a unit are, share one string.
func StoredKeys(evs []event.Envelope) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		key := ""
		for i := range evs {
			if i == 0 || !oneOrder(&evs[i-1], &evs[i]) {
				key = StoredKey(&evs[i])
			}
			if !yield(i, key) {
				return
			}
		}
	}
}

// oneOrder reports whether both events are in the order of the same aggregate.
func oneOrder(a, b *event.Envelope) bool {
	return a.Delivery.OrderingKey == "" && b.Delivery.OrderingKey == "" &&
		a.TenantID == b.TenantID && a.AggregateType == b.AggregateType && a.AggregateID == b.AggregateID
}

// GivenKey reverses [StoredKey]: it returns the [event.Delivery.OrderingKey] of a row. If the row of an aggregate has no key, its key is its own
// id.
func GivenKey(stored, aggregateID, id string) string {
	if stored == "" && aggregateID != "" {
		return id
	}
	return ExplicitKey(stored)
}

// ExplicitKey takes the caller's explicit ordering key out of the result of event.Envelope.OrderingKey. It
// returns "" if that was made from an aggregate. Both begin with the tenant; an explicit key is followed by
// one more part, an aggregate by two.
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

// behindPart returns the text behind the first separator "|" that is not escaped.
func behindPart(s string) (rest string, found bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++ // skips the escaped character
		case '|':
			return s[i+1:], true
		}
	}
	return "", false
}
