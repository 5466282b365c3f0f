package console

import (
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/outbox"
)

// late is the age from which an event that waits is worth a look.
const late = time.Minute

// overviewView is the first page.
type overviewView struct {
	Outbox    *outbox.Stats
	Overdue   []outbox.Overdue
	Consumers []consumerRow
	Unknown   []idempotency.Unknown
	Kinds     []*kind
	Findings  []finding

	HasInbox, HasKeys bool
}

// finding is something that somebody should look at.
type finding struct {
	State, Text, Href string
	Word              string // what it asks for
}

// overview shows the state of all parts. Its statements run beside each other, and none of them reads more rows when more wait.
func (c *Console) overview(v *visit) error {
	view := &overviewView{HasInbox: c.cfg.Inbox != nil, HasKeys: c.cfg.Idempotency != nil}
	reads, ctx := errgroup.WithContext(v.Context())
	if c.cfg.Outbox != nil {
		reads.Go(func() error {
			st, err := c.cfg.Outbox.Stats(ctx)
			view.Outbox = &st
			return err
		})
		reads.Go(func() (err error) {
			view.Overdue, err = c.cfg.Outbox.Overdue(ctx)
			return err
		})
	}
	if view.HasInbox {
		reads.Go(func() (err error) {
			view.Consumers, err = c.readConsumers(ctx)
			return err
		})
	}
	if view.HasKeys {
		reads.Go(func() (err error) {
			view.Unknown, err = c.cfg.Idempotency.Unknown(ctx, c.db, "", mostUnknown)
			return err
		})
	}
	reads.Go(func() (err error) {
		view.Kinds, err = c.readKinds(v)
		return err
	})
	if err := reads.Wait(); err != nil {
		return err
	}
	view.Findings = findings(view, v.now)
	return v.show("overview", "Overview", view)
}

// findings are what somebody should look at, the gravest first.
func findings(view *overviewView, now time.Time) (list []finding) {
	add := func(state, text, href string) {
		word := "look"
		if state == stateBad {
			word = "decide"
		}
		list = append(list, finding{state, text, href, word})
	}
	down := func(text string) { list = append(list, finding{stateBad, text, pageStuck, "down"}) }
	for _, o := range view.Overdue {
		waits := "Events have waited for " + short(now.Sub(o.Since))
		if o.Relayed {
			down(waits + ", although a relay has their lanes.")
		} else {
			down(waits + ", and no relay publishes them.")
		}
	}
	for _, c := range view.Consumers {
		if !c.Runs && c.Parked > 0 {
			down("No process runs " + c.Consumer + ", and messages wait for it.")
		}
	}
	if o := view.Outbox; o != nil && o.Dead > 0 {
		add(stateBad, counted(o.Dead, "event", "events")+" could not be published.", "dead?box=outbox")
	}
	for _, st := range view.Consumers {
		if st.DeadLetters > 0 {
			s := selection{Box: boxInbox, Consumer: st.Consumer}
			add(stateBad, st.Consumer+" gave up "+counted(int64(st.DeadLetters), "message", "messages")+".", "dead?"+s.Values().Encode())
		}
	}
	if n := len(view.Unknown); n > 0 {
		add(stateBad, "Nobody knows the outcome of "+counted(int64(n), "step of a request", "steps of requests")+".", "keys")
	}
	if o := view.Outbox; o != nil && o.OldestAge > late && len(view.Overdue) == 0 {
		add(stateWarn, "An event has waited for "+short(o.OldestAge)+".", pageStuck)
	}
	if o := view.Outbox; o != nil && o.TenantsPaused > 0 {
		add(stateWarn, counted(int64(o.TenantsPaused), "tenant is paused", "tenants are paused")+", and "+
			counted(o.Paused, "event waits", "events wait")+" for that.", pageTenants)
	}
	for _, st := range view.Consumers {
		if st.Failed > 0 {
			add(stateWarn, counted(int64(st.Failed), "key", "keys")+" of "+st.Consumer+" failed and will be tried again.", "stuck")
		}
	}
	return list
}

// DeadAtConsumers is the number of dead letters of all consumers, with a plus if there may be more.
func (o *overviewView) DeadAtConsumers() string {
	n, more := 0, ""
	for _, st := range o.Consumers {
		n += st.DeadLetters
		if st.DeadLetters > 0 && st.DeadLetters >= st.Counted {
			more = "+"
		}
	}
	return group(int64(n)) + more
}
