package facts

import (
	"strings"
	"time"

	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/console/internal/skin"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

// Life is the life of an event, as a page shows it.
type Life struct {
	ops.Life

	Details  []Detail
	Metadata []Detail
	Trace    *Trace
	Moments  []Moment
	// Waits is true if the life goes on.
	Waits bool
	// Related finds the events of the same request, "" if the event has no correlation id.
	Related string
}

// Moment is one thing that happened to the event.
type Moment struct {
	ops.Moment

	Where, State, Text string
	// Day is the day, if it is not that of the row above. Clock is the time of day to the millisecond, and Later the time since the row above.
	Day, Clock, Later string
	// Front is the address of the page about the event or message that it waits behind.
	Front string
	// Decide is the address of the dead letter that it became, "" if there is none or an operator has decided.
	Decide string
}

// LifeOf prepares the life of an event. traceURL is the address of a trace, with [TraceID].
func LifeOf(l *ops.Life, traceURL string, now time.Time) Life {
	view := Life{Life: *l, Trace: TraceOf(traceURL, l.Metadata), Metadata: Metadata(l.Metadata)}
	related := l.Metadata[event.CorrelationID]
	key := l.MessageKey
	if key == l.ID {
		key = ""
	}
	view.Details = withValue([]Detail{
		{"Event id", l.ID}, {"Type", l.Type}, {"Topic", l.Topic}, {"Tenant", l.Tenant}, {"Source", l.Source},
		{"Aggregate", strings.TrimSpace(l.AggregateType + " " + l.AggregateID)}, {"Aggregate version", words.Positive(l.AggregateVersion)},
		{"Ordering key", l.Key}, {"Sequence", words.Positive(l.Sequence)}, {"Correlation id", related}, {"Message key", key},
	})
	if related != "" {
		view.Related = frame.Search(related)
	}
	var above time.Time
	for n := range l.History {
		m := momentOf(l, &l.History[n])
		at := m.At
		if at.IsZero() {
			at, view.Waits = now, true
		} else {
			m.Clock = words.Clock(at)
			switch {
			case m.After:
				m.Clock = "after " + m.Clock
			case m.Before:
				m.Clock = "before " + m.Clock
			}
			if words.Date(at) != words.Date(above) {
				m.Day = words.Date(at)
			}
		}
		if !above.IsZero() && !m.After && !m.Before {
			m.Later = words.Later(at.Sub(above))
		}
		above = at
		view.Moments = append(view.Moments, m)
	}
	return view
}

func momentOf(l *ops.Life, m *ops.Moment) Moment {
	view := Moment{Moment: *m, Where: "outbox", State: skin.Plain}
	if m.Consumer != "" {
		view.Where = "consumer " + m.Consumer
	}
	switch m.What {
	case ops.Dead:
		view.State = skin.Bad
	case ops.Refused, ops.Failing, ops.Tried, ops.Paused:
		view.State = skin.Warn
	case ops.Published, ops.Handled, ops.StepDone:
		view.State = skin.Good
	case ops.Recorded, ops.Received, ops.Waiting, ops.Delayed, ops.Decided:
	}
	var parts []string
	add := func(prefix, text string) {
		if text != "" {
			parts = append(parts, prefix+text)
		}
	}
	add("", string(m.Action))
	add("by ", m.Actor)
	add("because ", m.Reason)
	add("", m.Step)
	if m.Attempts > 0 {
		add("", words.Counted(int64(m.Attempts), "try", "tries"))
	}
	add("until ", words.Stamp(m.Until))
	switch {
	case m.After:
		add("", "the time itself is not kept")
	case m.Before:
		add("", "its time and its error are not kept after the decision")
	case m.Action == operator.Edit:
		add("", formerPayload(l, m))
	}
	view.Text = strings.Join(parts, ", ")
	if m.What == ops.Dead && !m.Before {
		view.Decide = frame.Address("dead", frame.Set(map[string]string{string(ops.FieldID): l.ID}))
	}
	if m.Behind != "" {
		view.Front = frame.Event(m.Behind, l.Source)
	}
	return view
}

// formerPayload says where the payload stands that an edit has replaced.
func formerPayload(l *ops.Life, m *ops.Moment) string {
	switch {
	case m.Consumer == "":
		return "the former payload is not kept"
	case l.Elsewhere:
		return "the former payload is in the outbox of " + l.Source + ", as long as that keeps published events"
	case len(l.Outbox) > 0:
		return "the former payload is the recorded one, in the outbox"
	default:
		return "the former payload is not kept: the outbox no longer has the event"
	}
}
