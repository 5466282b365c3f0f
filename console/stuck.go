package console

import (
	"cmp"
	"net/url"

	"github.com/oncebox/oncebox/ops"
)

// States of rows, and classes of buttons, as the stylesheet has them.
const (
	stateBad     = "bad"
	stateWarn    = "warn"
	stateGood    = "good"
	statePlain   = "plain"
	classPrimary = "primary"
)

// mostStuck is how many of each kind the page shows, the oldest first.
const mostStuck = 100

// stuckView is the page of what waits for longer than its turn, or for a decision.
type stuckView struct {
	ops.Filter

	Rows   []stuckRow
	Many   bool // of a kind there may be more
	Notice string
}

// stuckRow is one of them, and what can be done about it.
type stuckRow struct {
	ops.Stuck

	State, Does string
	Why         string // of what has no error
	Event       string // address of the page of its life
	Acts        []link
}

// stuck lists what is stuck over all parts.
func (c *Console) stuck(v *visit) error {
	q := v.URL.Query()
	view := &stuckView{Filter: ops.Filter{Tenant: q.Get(fieldTenant), Topic: q.Get("topic"), Consumer: q.Get(fieldConsumer)}, Notice: decided(q)}
	found, err := c.view().Stuck(v.Context(), view.Filter, mostStuck)
	if err != nil {
		return err
	}
	count := map[ops.Kind]int{}
	for n := range found {
		count[found[n].Kind]++
		view.Many = view.Many || count[found[n].Kind] >= mostStuck
		view.Rows = append(view.Rows, c.stuckRow(v, &found[n]))
	}
	return v.show(pageStuck, "Stuck", view)
}

func (c *Console) view() *ops.View {
	return ops.New(c.db, c.cfg.Outbox, c.cfg.Inbox, c.cfg.Idempotency)
}

func (c *Console) stuckRow(v *visit, s *ops.Stuck) stuckRow {
	row := stuckRow{Stuck: *s, State: stateWarn, Does: advice(s), Why: cmp.Or(s.Error, why(s))}
	r := ref{Box: boxOutbox, ID: s.ID, Tenant: s.Tenant}
	if s.MessageKey != "" {
		r = ref{Box: boxInbox, ID: s.MessageKey, Tenant: s.Tenant, Consumer: s.Consumer, Source: s.Source}
	}
	switch s.Kind {
	case ops.EventDead, ops.MessageDead:
		row.State = stateBad
		row.Acts = []link{{Name: "Open", Href: r.Letter(), Class: classPrimary}}
	case ops.MessageFailing:
		if v.access.Act {
			row.Acts = []link{{"Retry now…", r.decide(decideRetry), classPrimary}, {"Give up…", r.decide(decideGiveUp), "danger"}}
		}
	case ops.StepUnknown:
		row.State = stateBad
		row.Acts = []link{{Name: "Resolve", Href: "keys?" + url.Values{fieldTenant: {s.Tenant}}.Encode(), Class: classPrimary}}
	case ops.TenantPaused:
		row.Acts = []link{{Name: "Tenants", Href: pageTenants, Class: classPrimary}}
	case ops.RelayMissing, ops.RelayLate, ops.ConsumerMissing:
		row.State = stateBad
	case ops.EventFailing:
	}
	if s.Type != "" {
		row.Event = eventPage(s.ID, s.Source)
	}
	return row
}

// why explains what has no error.
func why(s *ops.Stuck) string {
	switch {
	case s.Kind == ops.RelayMissing && s.Relay != "":
		return "Events wait, and no relay publishes them. The relay that had their lanes has vanished."
	case s.Kind == ops.RelayMissing:
		return "Events wait, and no relay publishes them."
	case s.Kind == ops.RelayLate:
		return "Events wait, although a relay has their lanes: the broker is in trouble, or the relay does not keep up."
	case s.Kind == ops.ConsumerMissing && s.Topic != "":
		return "Messages of the topic wait, and no process that runs their consumer handles it."
	case s.Kind == ops.ConsumerMissing:
		return "Messages wait, and no process runs their consumer."
	case s.Kind == ops.StepUnknown:
		return "Its process ended in the middle of the step, or got no answer. Requests with the key are refused."
	default:
		return ""
	}
}

// advice is what to do about it, where no button does it.
func advice(s *ops.Stuck) string {
	switch s.Kind {
	case ops.RelayMissing:
		return "Start a process of the service that runs its relay, or: oncebox relay."
	case ops.RelayLate:
		return "Read the log of the relay. oncebox doctor asks the broker."
	case ops.ConsumerMissing:
		if s.Topic != "" {
			return "Start a process of the service that runs the consumer " + s.Consumer + " on the topic " + s.Topic + "."
		}
		return "Start a process of the service that runs the consumer " + s.Consumer + "."
	case ops.EventFailing:
		return "Mend the cause. It is tried again by itself."
	case ops.EventDead, ops.MessageDead:
		return "Mend the cause, then replay it; or edit or discard it."
	case ops.MessageFailing:
		return "Mend the cause. It is tried again by itself, or at once."
	case ops.StepUnknown:
		return "Find out whether the step was done, and write it down."
	case ops.TenantPaused:
		return "Resume it when its events may leave."
	default:
		return ""
	}
}
