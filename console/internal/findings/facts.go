package findings

import (
	"cmp"
	"slices"
	"time"

	"github.com/oncebox/oncebox/console/internal/consumer"
	"github.com/oncebox/oncebox/console/internal/flood"
	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/console/internal/outlook"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/ops/outage"
	"github.com/oncebox/oncebox/ops/processes"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
	"github.com/oncebox/oncebox/outbox/tenants"
)

// late is the age from which a waiting event becomes a finding.
const late = time.Minute

// Facts are what was read for the first page. Now is its time, and Act whether the actor may change something.
type Facts struct {
	Now time.Time
	Act bool

	// Outbox are the numbers of the outbox, nil without one. Trend says whether its backlog grows, "" if that is not known, and Overdue has what waits
	// too long.
	Outbox  *outboxstate.Stats
	Trend   string
	Overdue []outboxstate.Overdue

	// Paused are the tenants that operators have paused.
	Paused []tenants.Pause

	Consumers []consumer.Row
	Floods    []flood.Flood
	Processes []processes.Process

	// Causes are those of stuck things, and Archived the groups of failures that operators have archived. UnknownSteps is the number of steps of requests
	// with an unknown outcome.
	Causes       []ops.Cause
	Archived     []failures.Group
	UnknownSteps int

	// History is that of the outbox, and Went has those of the consumers, by state.Family.
	History operator.History
	Went    map[string]operator.History
}

// List returns what an operator should look at, the most serious first.
func (f *Facts) List() (list []Finding) {
	away := outage.Of(f.Processes, consumer.States(f.Consumers))
	var under []Finding // what follows from the outage
	put := func(o Finding, follows bool) {
		if follows {
			under = append(under, o)
		} else {
			list = append(list, o)
		}
	}
	for n := range f.Overdue {
		o, kind := &f.Overdue[n], ops.RelayMissing
		if o.Relayed {
			kind = ops.RelayLate
		}
		put(down(f.overdue(o), frame.Stuck, kind), away.Covers(kind))
	}
	for _, o := range consumer.Down(f.Consumers, f.Now) {
		line := down(o.Text, consumer.Href(o.Consumer), o.Kind)
		if o.Kind == ops.ConsumerPaused {
			line.Acts = f.resume(o.Consumer)
		}
		put(line, away.Covers(o.Kind))
	}
	for n := range f.Processes {
		if p := &f.Processes[n]; !p.Alive {
			list = append(list, look("The process "+p.Name+" has vanished: it was last seen "+words.Ago(f.Now, p.SeenAt)+".", frame.Processes,
				"The other processes take its work over. It leaves this list within a day."))
		}
	}
	for n := range f.Floods {
		list = append(list, f.flood(&f.Floods[n]))
	}
	for _, o := range f.unknown() {
		put(o, away.Mute || away.Deaf)
	}
	if o, many := f.manyEvents(); many {
		put(o, away.Mute)
	}
	if text := away.Line(f.backlog()); text != "" {
		o := down(text+". The first error: "+words.Cause(away.Error), frame.Processes, "")
		o.Ahead, o.Under = outlook.Outage(), under
		list = append([]Finding{o}, list...)
	}
	list = append(list, f.decisions()...)
	list = append(list, f.outbox()...)
	list = append(list, f.fails()...)
	slices.SortStableFunc(list, func(a, b Finding) int { return cmp.Compare(a.place(), b.place()) })
	return list
}

// decisions returns what waits for a decision, and the consumers that are paused.
func (f *Facts) decisions() (list []Finding) {
	if o := f.Outbox; o != nil && o.Dead > 0 {
		list = append(list, decide(words.Counted(o.Dead, "event", "events")+" could not be published.", "dead?box=outbox", ops.EventDead))
	}
	for n := range f.Consumers {
		list = append(list, f.consumer(&f.Consumers[n])...)
	}
	if n := f.UnknownSteps; n > 0 {
		list = append(list,
			decide("Nobody knows the outcome of "+words.Counted(int64(n), "step of a request", "steps of requests")+".", "keys", ops.StepUnknown))
	}
	return list
}

// outbox returns what somebody should look at in the outbox.
func (f *Facts) outbox() (list []Finding) {
	o := f.Outbox
	if o == nil {
		return nil
	}
	if o.OldestAge > late && len(f.Overdue) == 0 {
		list = append(list, look("An event has waited for "+words.Short(o.OldestAge)+".", frame.Stuck, outlook.OfKind(ops.RelayLate)))
	}
	list = append(list, f.pauses()...)
	if o.SnapshotAge > ops.LongTransaction {
		list = append(list, look("A database transaction has been open for "+words.Short(o.SnapshotAge)+", and the outbox becomes slower. "+
			"The command oncebox doctor shows which one.", frame.Stuck, ""))
	}
	return list
}

// manyEvents returns a line about many events that are not late yet.
func (f *Facts) manyEvents() (line Finding, many bool) {
	o := f.Outbox
	if o == nil || o.Backlog() <= state.Many || o.OldestAge > late || len(f.Overdue) > 0 {
		return line, false
	}
	text := words.Counted(o.Backlog(), "event waits", "events wait") + " to be published, the oldest for " + words.Short(o.OldestAge)
	if f.Trend != "" {
		text += ", " + f.Trend
	}
	return wait(text+".", frame.Tenants, "Nothing is lost: the events are stored, and leave in their turn."), true
}

// backlog returns how many events should be published.
func (f *Facts) backlog() int64 {
	if f.Outbox == nil {
		return 0
	}
	return f.Outbox.Backlog()
}

// overdue says for how long events have waited, and why.
func (f *Facts) overdue(late *outboxstate.Overdue) string {
	waits := "events have waited for " + words.Short(f.Now.Sub(late.Since))
	switch {
	case late.Relayed && late.Error != "" && !late.FailingSince.IsZero():
		broker := f.brokerOf(late.Owner)
		if late.FailingTopic != "" {
			broker = "The topic " + late.FailingTopic
		}
		return broker + " has taken nothing since " + late.FailingSince.UTC().Format("15:04:05") + " UTC (relay " + late.Owner + "), and " +
			waits + ": " + words.Cause(late.Error)
	case late.Relayed && late.Error != "":
		return words.Upper(waits) + ", although a relay is responsible for them: " + words.Cause(late.Error)
	case late.Relayed:
		return words.Upper(waits) + ", although a relay is responsible for them."
	default:
		return words.Upper(waits) + ", and no relay publishes them."
	}
}

// brokerOf returns what the broker of a relay is called.
func (f *Facts) brokerOf(relay string) string {
	for n := range f.Processes {
		if p := &f.Processes[n]; p.Relay == relay && p.Broker != "" {
			return p.Broker
		}
	}
	return "The broker"
}
