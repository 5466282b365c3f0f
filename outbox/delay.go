package outbox

import (
	"context"
	"slices"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// askTime is a statement of its own, and only for units that delay an event: the statement that stores events is the hottest of all, and a further
// parameter for each row would be paid by all units.
const askTime = `SELECT clock_timestamp()`

// setTimes replaces the delay of each event by the time at which it ends, by the clock of the database.
func setTimes(ctx context.Context, h outboxdb.Conn, evs []event.Envelope) error {
	delayed := func(e event.Envelope) bool { return e.Delivery.Delay > 0 }
	if !slices.ContainsFunc(evs, delayed) {
		return nil
	}
	var now time.Time
	if err := h.QueryRow(ctx, askTime, nil, &now); err != nil {
		return outboxdb.Wrap("ask for the time from which events are delayed", err)
	}
	for i := range evs {
		if d := &evs[i].Delivery; d.Delay > 0 {
			d.NotBefore, d.Delay = now.Add(d.Delay), 0
		}
	}
	return nil
}
