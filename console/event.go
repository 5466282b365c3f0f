package console

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/ops"
)

// eventView is the data of the page about the whole life of an event.
type eventView struct {
	ID, Source string
	Lives      []lifeView
}

// lifeView is the life of one of the events that have the id.
type lifeView struct {
	ops.Life

	Details  []detail
	Metadata []detail
	Trace    *link
	Moments  []momentView
}

// momentView is one thing that happened to the event.
type momentView struct {
	ops.Moment

	Where, State, Text string
	// Front is the address of the page about the event or message that it waits behind.
	Front string
}

// showEvent shows the whole life of an event over all tables. Without an id it asks for one.
func showEvent(v *visit) error {
	q := v.URL.Query()
	view := &eventView{ID: strings.TrimSpace(q.Get(fieldID)), Source: strings.TrimSpace(q.Get("source"))}
	if view.ID == "" {
		return v.show("event", "Event", view)
	}
	var sources []string
	if view.Source != "" {
		sources = append(sources, view.Source)
	}
	found, err := v.view().Life(v.Context(), view.ID, sources...)
	switch {
	case errors.Is(err, ops.ErrUnknown):
		_, text, _ := strings.Cut(err.Error(), ops.ErrUnknown.Error()+"; ")
		return &problem{
			http.StatusNotFound, "Nothing is known of this event",
			strings.TrimSpace("It never was here, or it is forgotten. " + upper(text) + ". An id that is no UUID needs the source of the message as well."),
		}
	case err != nil:
		return err
	}
	for n := range found {
		view.Lives = append(view.Lives, lifeViewOf(v.Console, &found[n]))
	}
	return v.show("event", "Event", view)
}

// upper makes the first letter a capital.
func upper(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func lifeViewOf(c *Console, l *ops.Life) lifeView {
	view := lifeView{Life: *l, Trace: trace(c, l.Metadata)}
	view.Details = slices.DeleteFunc([]detail{
		{"Event id", l.ID}, {"Type", l.Type}, {"Topic", l.Topic}, {"Tenant", l.Tenant}, {"Source", l.Source},
		{"Aggregate", strings.TrimSpace(l.AggregateType + " " + l.AggregateID)}, {"Aggregate version", positive(l.AggregateVersion)},
		{"Ordering key", l.Key}, {"Sequence", positive(l.Sequence)}, {"Correlation id", l.Metadata[event.CorrelationID]},
	}, func(d detail) bool { return d.Value == "" })
	if l.MessageKey != l.ID && l.MessageKey != "" {
		view.Details = append(view.Details, detail{"Message key", l.MessageKey})
	}
	for _, name := range slices.Sorted(maps.Keys(l.Metadata)) {
		view.Metadata = append(view.Metadata, detail{name, l.Metadata[name]})
	}
	for n := range l.History {
		view.Moments = append(view.Moments, momentOf(l, &l.History[n]))
	}
	return view
}

func momentOf(l *ops.Life, m *ops.Moment) momentView {
	view := momentView{Moment: *m, Where: "outbox", State: statePlain}
	if m.Consumer != "" {
		view.Where = "consumer " + m.Consumer
	}
	switch m.What {
	case ops.Dead:
		view.State = stateBad
	case ops.Refused, ops.Failing, ops.Tried, ops.Paused:
		view.State = stateWarn
	case ops.Published, ops.Entered, ops.StepDone:
		view.State = stateGood
	case ops.Recorded, ops.Waiting, ops.Delayed, ops.Decided:
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
		add("", counted(int64(m.Attempts), "try", "tries"))
	}
	add("until ", stamp(m.Until))
	view.Text = strings.Join(parts, ", ")
	if m.Behind != "" {
		view.Front = eventPage(m.Behind, l.Source)
	}
	return view
}

// eventPage returns the address of the page about an event.
func eventPage(id, source string) string {
	q := url.Values{fieldID: {id}}
	if source != "" {
		q.Set("source", source)
	}
	return "event?" + q.Encode()
}
