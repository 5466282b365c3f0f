package envelope

import (
	"fmt"

	"github.com/oncebox/oncebox/event"
)

type aggregateKey struct{ tenant, kind, id string }

// Contiguous returns an error unless the versions of an aggregate's events follow one another. If they do not, two instances of the aggregate were
// tracked, or versions that were set by hand are wrong, and consumers would miss an event or confuse two.
func Contiguous(events []event.Envelope) error {
	if len(events) < 2 {
		return nil
	}
	latest := map[aggregateKey]int64{}
	for i := range events {
		e := &events[i]
		if e.AggregateVersion == 0 || e.AggregateID == "" {
			continue
		}
		key := aggregateKey{e.TenantID, e.AggregateType, e.AggregateID}
		// The events of an aggregate without stored versions begin at 1 each time.
		if before := latest[key]; before > 0 && e.AggregateVersion > 1 && e.AggregateVersion != before+1 {
			return fmt.Errorf("uow: flush: %s %s: the event %s leads to version %d, and the one before it in this unit to %d: "+
				"is the aggregate tracked as two instances?", e.AggregateType, e.AggregateID, e.Type, e.AggregateVersion, before)
		}
		latest[key] = e.AggregateVersion
	}
	return nil
}
