package ops

import (
	"cmp"
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/operator"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

// lives holds the events with one id. They differ in tenant or source.
type lives struct {
	id   string
	keys []string // message keys under which the inbox may have them
	list []*Life
}

// of returns the life with this tenant and source, and makes it if there is none. A life without a source came from an
// audit entry, and gets the source now.
func (f *lives) of(tenant, source string) *Life {
	for _, l := range f.list {
		if l.Tenant == tenant && (l.Source == source || l.Source == "") {
			l.Source = source
			return l
		}
	}
	l := &Life{ID: f.id, Tenant: tenant, Source: source}
	f.list = append(f.list, l)
	return l
}

// ofTenant returns the event that an audit entry without a source is about.
func (f *lives) ofTenant(tenant string) *Life {
	for _, l := range f.list {
		if l.Tenant == tenant {
			return l
		}
	}
	return f.of(tenant, "")
}

// decided adds an operator's action on an event or message.
func (f *lives) decided(e *operator.AuditEntry) {
	var l *Life
	if e.Part == operator.PartInbox {
		l = f.of(e.TenantID, e.Source)
		l.MessageKey = e.EventID
	} else {
		l = f.ofTenant(e.TenantID)
	}
	l.Type, l.Topic = cmp.Or(l.Type, e.Type), cmp.Or(l.Topic, e.Topic)
	switch e.Action {
	case operator.Replay, operator.Edit, operator.Discard: // only for dead letters; the row of the letter is gone
		l.add(Moment{At: e.At, Before: true, What: Dead, Consumer: e.Consumer})
	default:
	}
	l.add(Moment{At: e.At, What: Decided, Consumer: e.Consumer, Actor: e.Actor, Action: e.Action, Reason: e.Reason})
}

// event adds a place of the event in the outbox: when it was recorded, and its present state or its end.
func (f *lives) event(e *outboxstate.Located) {
	l := f.of(e.TenantID, e.Source)
	l.describe(&e.Envelope)
	l.Key, l.MessageKey = cmp.Or(l.Key, e.Key), state.MessageKey(e.Source, e.ID)
	l.Outbox = append(l.Outbox, *e)
	l.add(Moment{At: e.CreatedAt, What: Recorded})
	tries := e.RetryCount + e.Crashes
	switch {
	case e.Status == outboxstate.StatusSent:
		l.add(Moment{At: e.SentAt, What: Published, Attempts: tries})
	case e.Status == outboxstate.StatusDead:
		l.add(Moment{At: e.DiedAt, What: Dead, Attempts: tries, Error: e.Error})
	case e.Status == outboxstate.StatusFailed:
		l.add(Moment{What: Refused, Attempts: tries, Error: e.Error, Until: e.RetryAfter, Behind: e.BehindID})
	case e.Waits:
		l.add(Moment{What: Delayed, Until: e.Delivery.NotBefore, Behind: e.BehindID})
	default:
		l.add(Moment{What: Waiting, Attempts: tries, Until: e.RetryAfter, Behind: e.BehindID})
	}
}

// message adds a consumer's view of the event: one moment for its state, and one for each step that it has completed.
func (f *lives) message(m *state.Located) {
	l := f.of(m.Key.TenantID, m.Key.Source)
	l.describe(&m.Envelope)
	l.MessageKey = m.Key.MessageKey
	l.Consumers = append(l.Consumers, *m)
	moment := Moment{At: m.At, Consumer: m.Key.Consumer, Attempts: m.Attempts, Error: m.Error, Until: m.DueAt, Behind: m.Behind}
	switch {
	case m.Place == state.PlaceSettled:
		moment.What = Handled
	case m.Place == state.PlaceDead:
		moment.What = Dead
	case m.Place == state.PlaceTried:
		moment.What = Tried
	// A parked message with tries has failed. Without tries it waits behind another, or for a process.
	case m.Attempts > 0:
		moment.What = Failing
	default:
		moment.What = Waiting
	}
	l.add(moment)
	for _, step := range m.Steps {
		l.add(Moment{At: step.At, What: StepDone, Consumer: m.Key.Consumer, Step: step.Name})
	}
}

// describe copies the description of the event from the first place that has it.
func (l *Life) describe(e *event.Envelope) {
	if e.ID == "" || l.Type != "" {
		return
	}
	l.ID, l.Type, l.Topic, l.Sequence = e.ID, e.Type, e.Topic, e.Sequence
	l.AggregateType, l.AggregateID, l.AggregateVersion = e.AggregateType, e.AggregateID, e.AggregateVersion
	l.Key, l.Metadata = cmp.Or(l.Key, e.OrderingKey()), e.Metadata
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier(e.Metadata))
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		l.TraceID = span.TraceID().String()
	}
}

func (l *Life) add(m Moment) { l.History = append(l.History, m) }
