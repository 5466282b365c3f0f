package envelope

import "github.com/oncebox/oncebox/event"

// Undelayed returns the events that are published without delay: a client cannot wait for the others. An event behind a delayed one of its ordering
// key, on whatever topic, waits with it.
func Undelayed(events []event.Envelope) []event.Envelope {
	blocked := map[string]bool{}
	var now []event.Envelope
	for i := range events {
		e := &events[i]
		key := e.OrderingKey()
		if isDelayed(e) {
			blocked[key] = key != ""
		} else if !blocked[key] {
			now = append(now, *e)
		}
	}
	return now
}

func isDelayed(e *event.Envelope) bool { return !e.Delivery.NotBefore.IsZero() || e.Delivery.Delay > 0 }
