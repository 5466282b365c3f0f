package console

import (
	"cmp"
	"net/url"
	"strconv"
	"time"

	"github.com/oncebox/oncebox/console/internal/causes"
	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/console/internal/outlook"
	"github.com/oncebox/oncebox/console/internal/skin"
	"github.com/oncebox/oncebox/inbox/consumers"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/outbox/tenants"
)

// States of rows and classes of buttons, by their names in the stylesheet.
const (
	stateBad     = skin.Bad
	stateWarn    = skin.Warn
	statePlain   = skin.Plain
	classPrimary = "primary"
	classCurrent = "current"
)

// stuckView is the data of the page of everything that waits too long or for a decision. It has a row for each cause, or, with Each, for each thing with one
// cause. The list is cut into pages in memory: it is bounded by ops.Looked for each kind.
type stuckView struct {
	ops.Filter

	Form        frame.Filter
	Rows        []stuckRow
	Notice      string
	Total       int    // number of stuck things
	More        bool   // there may be more than Total
	Sums        string // see causes.Sums
	From, To    int    // the rows From up to, and without, To are shown; the first row is 0
	Of          int    // number of rows on all pages
	First, Next string
	Each        bool     // the rows are the requests with one step in doubt
	Archived    int      // number of causes that are left out; a list of requests leaves out none
	Unknown     []string // consumers whose broker has not reported how many messages wait
	Pauses      []tenants.Pause
	Paused      []consumers.Pause
	Transaction time.Duration // age of the oldest open transaction, if it is too old
}

// stuckRow is a cause, and the actions for it.
type stuckRow struct {
	ops.Cause

	State, Does string
	Ahead       string // what becomes of the things by themselves
	Many        string // names the things, if there are several
	Example     string // the whole error of one of the things
	Why         string // an explanation, if there is no error
	Event       string // address of the page about the event
	Group       string // address of the page of the cause
	Said        string // what operators said about the cause before
	Acts        []link
}

// showStuck lists what is stuck in all parts.
func showStuck(v *visit) error {
	q := v.URL.Query()
	view := &stuckView{
		Filter: ops.Filter{Tenant: q.Get(fieldTenant), Topic: q.Get(fieldTopic), Consumer: q.Get(fieldConsumer)}, Notice: decided(q), Each: q.Get("each") != "",
	}
	list, err := stuckCauses(v, view, q.Get(fieldStep))
	if err != nil {
		return err
	}
	if view.Unknown, err = v.view().Unknown(v.Context(), view.Filter); err != nil {
		return err
	}
	if view.Pauses, err = v.view().Pauses(v.Context(), view.Filter); err != nil {
		return err
	}
	if view.Paused, err = v.view().ConsumerPauses(v.Context(), view.Filter); err != nil {
		return err
	}
	if v.cfg.Outbox != nil {
		st, err := v.cfg.Outbox.State().Stats(v.Context())
		if err != nil {
			return err
		}
		if st.SnapshotAge > ops.LongTransaction {
			view.Transaction = st.SnapshotAge
		}
	}
	view.Form = v.filter(frame.Set(map[string]string{fieldTenant: view.Tenant, fieldTopic: view.Topic, fieldConsumer: view.Consumer}), nil)
	view.Total, view.More = ops.Total(list)
	view.Sums = causes.Sums(list)
	page, _ := strconv.Atoi(q.Get("page"))
	view.Of = len(list)
	view.From = min(max(page, 0)*perPage, max(len(list)-1, 0)/perPage*perPage)
	view.To = min(view.From+perPage, len(list))
	address := func(page int) string {
		return pageStuck + "?" + frame.With(rest(q), url.Values{"page": {strconv.Itoa(page)}}).Encode()
	}
	if view.From > 0 {
		view.First = address(0)
	}
	if view.To < view.Of {
		view.Next = address(view.From/perPage + 1)
	}
	for n := range list[view.From:view.To] {
		view.Rows = append(view.Rows, stuckRowOf(v, &list[view.From+n]))
	}
	return v.show(pageStuck, "Stuck", view)
}

// rest returns the query of the page without the fields of the notice about the last action.
func rest(q url.Values) url.Values {
	q = frame.With(q, nil)
	q.Del(fieldDone)
	return q
}

// stuckCauses returns the rows of all pages, and sets how many causes are left out.
func stuckCauses(v *visit, view *stuckView, step string) ([]ops.Cause, error) {
	if view.Each {
		return eachWith(v, view.Filter, step)
	}
	list, archived, err := v.view().Causes(v.Context(), view.Filter)
	view.Archived = len(archived)
	return causes.Together(list), err
}

// eachWith returns the requests with a step in doubt, each as a cause of its own.
func eachWith(v *visit, filter ops.Filter, step string) (list []ops.Cause, err error) {
	found, err := v.view().Stuck(v.Context(), filter, ops.Looked)
	for n := range found {
		if s := &found[n]; s.Kind == ops.StepUnknown && s.Step == step {
			list = append(list, ops.Cause{Stuck: *s, Text: s.Error, Count: 1, More: len(found) >= ops.Looked})
		}
	}
	return list, err
}

func (c *Console) view() *ops.View {
	return ops.New(c.db, c.cfg.Outbox, c.cfg.Inbox, c.cfg.Idempotency)
}

func stuckRowOf(v *visit, cause *ops.Cause) stuckRow {
	s := &cause.Stuck
	row := stuckRow{Cause: *cause, State: stateWarn, Does: outlook.Advice(s), Ahead: outlook.Of(s), Why: cmp.Or(cause.Text, outlook.Why(s))}
	switch s.Kind {
	case ops.EventDead, ops.MessageDead, ops.StepUnknown, ops.RelayMissing, ops.RelayLate, ops.ConsumerMissing, ops.ConsumerAway, ops.ConsumerLate:
		row.State = stateBad
	case ops.EventFailing, ops.MessageFailing, ops.ConsumerBehind, ops.TenantPaused, ops.ConsumerPaused:
	}
	row.Group = causes.Shows(cause)
	row.Said = causes.Said(cause.Failures)
	if cause.Count > 1 {
		row.Many, row.Acts = causes.Many(cause), actsOnMany(v, cause)
		if s.Error != cause.Text {
			row.Example = s.Error
		}
		return row
	}
	row.Acts = actsOn(v, s)
	if s.Type != "" {
		row.Event = frame.Event(s.ID, s.Source)
	}
	return row
}

// actsOn returns the buttons for one thing.
func actsOn(v *visit, s *ops.Stuck) []link {
	r := refOutbox(s.ID, s.Tenant)
	if s.MessageKey != "" {
		r = ref{ops.LetterRef{Box: ops.BoxInbox, ID: s.MessageKey, Tenant: s.Tenant, Consumer: s.Consumer, Source: s.Source}}
	}
	switch s.Kind {
	case ops.EventDead, ops.MessageDead:
		return []link{{Name: "Open", Href: r.Letter(), Class: classPrimary}}
	case ops.MessageFailing:
		if v.access.Act {
			return []link{{"Retry now…", r.decide(decideRetry), classPrimary}, {"Give up…", r.decide(decideGiveUp), "danger"}}
		}
	case ops.StepUnknown:
		return []link{{Name: "Resolve", Href: "keys?" + url.Values{fieldTenant: {s.Tenant}}.Encode(), Class: classPrimary}}
	case ops.TenantPaused:
		return []link{{Name: "Tenants", Href: pageTenants, Class: classPrimary}}
	case ops.ConsumerPaused, ops.ConsumerMissing, ops.ConsumerBehind:
		return []link{{Name: titleConsumers, Href: pageConsumers, Class: classPrimary}}
	case ops.RelayMissing, ops.RelayLate, ops.ConsumerAway, ops.ConsumerLate, ops.EventFailing:
	}
	return nil
}

// fieldStep is the field of the address with a step of requests.
const fieldStep = "step"

// actsOnMany returns the buttons for all things with one cause.
func actsOnMany(v *visit, c *ops.Cause) []link {
	switch c.Kind {
	case ops.MessageFailing, ops.MessageDead, ops.EventDead, ops.EventFailing:
		var acts []link
		if page := causes.Shows(c); page != "" {
			acts = append(acts, link{"Open", page, classPrimary})
		}
		if v.access.Act && c.Kind == ops.MessageFailing {
			acts = append(acts, link{Name: "Retry all now…", Href: causes.RetryAll(c)})
		}
		return acts
	case ops.StepUnknown:
		each := frame.Address(pageStuck, url.Values{"each": {"1"}, fieldStep: {c.Step}})
		return []link{{Name: "Resolve", Href: pageKeys, Class: classPrimary}, {Name: "Show each", Href: each}}
	case ops.RelayMissing, ops.RelayLate, ops.ConsumerMissing, ops.ConsumerAway, ops.ConsumerLate, ops.ConsumerBehind, ops.ConsumerPaused, ops.TenantPaused:
	}
	return nil
}
