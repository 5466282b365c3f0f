package envelope

import (
	"slices"

	"github.com/oncebox/oncebox/event"
)

// IDs returns the ids of the events.
func IDs(events []event.Envelope) []string {
	ids := make([]string, len(events))
	for i := range events {
		ids[i] = events[i].ID
	}
	return ids
}

// WithoutRepeats returns the events whose ids the sink has left as they were. An event that repeats an earlier one got the id of the earlier one
// from the sink, and the earlier one has been through all sinks in its own unit.
func WithoutRepeats(events []event.Envelope, ids []string) []event.Envelope {
	if slices.Equal(IDs(events), ids) {
		return events
	}
	var fresh []event.Envelope // a new slice: the unit still needs the old one for its announcement
	for i := range events {
		if events[i].ID == ids[i] {
			fresh = append(fresh, events[i])
		}
	}
	return fresh
}
