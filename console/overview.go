package console

import (
	"cmp"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/console/internal/causes"
	"github.com/oncebox/oncebox/console/internal/consumer"
	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/console/internal/outlook"
	"github.com/oncebox/oncebox/console/internal/plot"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/messaging/count"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/ops/outage"
	"github.com/oncebox/oncebox/ops/processes"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

// late is the age from which a waiting event becomes a finding.
const late = time.Minute

// overviewView is the data of the first page.
type overviewView struct {
	Outbox    *outboxstate.Stats
	Overdue   []outboxstate.Overdue
	Consumers []consumer.Row
	Unknown   []idempotency.Unknown
	Kinds     []*causes.Kind
	Causes    []ops.Cause // the causes of stuck things
	Findings  []finding

	HasInbox, HasKeys bool

	AtBroker, LateAtBroker string // see consumer.Waits
	NoBroker               bool

	// Trend says whether the backlog grows, "" if that is not known. Plots, and Sparks by consumer, show how the figures went over the time that is the
	// current one of Spans.
	Trend  string
	Plots  []*plot.Plot
	Sparks map[string]*plot.Plot
	Spans  []tab

	processes []processes.Process
	history   operator.History            // of the outbox
	went      map[string]operator.History // of the consumers
}

// finding is a line of the first page that an operator should look at.
type finding struct {
	State, Text, Href string
	Word              string // the link's text: what the finding asks for
	Ahead             string // what becomes of it by itself
	Versions          string // see processes.FailsIn
	Said              string // what operators said about it before
	Under             []finding
}

// wordLook is the link's text of a finding that needs no decision.
const wordLook = "look"

// showOverview shows the state of all parts. Its statements run at the same time, and none reads more rows when more events or messages wait.
func showOverview(v *visit) error {
	view := &overviewView{HasInbox: v.cfg.Inbox != nil, HasKeys: v.cfg.Idempotency != nil}
	shown := plot.SpanOf(v.URL.Query().Get(fieldSpan))
	reads, ctx := errgroup.WithContext(v.Context())
	reads.Go(func() (err error) {
		view.processes, err = processes.List(ctx, v.db, v.cfg.Outbox, v.cfg.Inbox)
		return err
	})
	if v.cfg.Outbox != nil {
		reads.Go(func() error {
			st, err := v.cfg.Outbox.State().Stats(ctx)
			view.Outbox = &st
			return err
		})
		reads.Go(func() (err error) {
			view.history, err = v.cfg.Outbox.State().History(ctx, shown.Length)
			return err
		})
		reads.Go(func() (err error) {
			view.Overdue, err = v.cfg.Outbox.State().Overdue(ctx)
			return err
		})
	}
	if view.HasInbox {
		reads.Go(func() (err error) {
			view.Consumers, err = consumer.Read(ctx, v.cfg.Outbox, v.cfg.Inbox)
			return err
		})
		reads.Go(func() (err error) {
			view.went, err = v.cfg.Inbox.State().History(ctx, shown.Length)
			return err
		})
	}
	if view.HasKeys {
		reads.Go(func() (err error) {
			view.Unknown, err = v.cfg.Idempotency.Unknown(ctx, v.db, "", mostUnknown)
			return err
		})
	}
	reads.Go(func() (err error) {
		if view.Causes, _, err = v.view().Causes(ctx, ops.Filter{}); err == nil {
			view.Kinds, err = causes.Kinds(ctx, v.now, view.Causes, v.cfg.Outbox, v.cfg.Inbox)
		}
		return err
	})
	if err := reads.Wait(); err != nil {
		return err
	}
	view.Findings = findings(view, v.now)
	view.draw(shown, v.now)
	return v.show("overview", "Overview", view)
}

// fieldSpan is the parameter with the time that the plots cover.
const fieldSpan = "span"

// spansOf returns the links to a page with the times that its plots can cover.
func spansOf(page string, fields url.Values, shown plot.Span) (list []tab) {
	for _, s := range plot.Spans() {
		l := tab{link: link{Name: s.Name, Href: frame.Address(cmp.Or(page, "./"), frame.With(fields, frame.Set(map[string]string{fieldSpan: s.Value})))}}
		if s.Value == shown.Value {
			l.Class = classCurrent
		}
		list = append(list, l)
	}
	return list
}

// draw makes the plots.
func (o *overviewView) draw(shown plot.Span, now time.Time) {
	o.Spans = spansOf("", nil, shown)
	o.AtBroker, o.LateAtBroker, o.NoBroker = consumer.Waits(o.Consumers)
	if o.Outbox != nil {
		c := &plot.Course{Span: shown, Now: now, History: o.history, Consumers: o.went}
		o.Trend, o.Plots = c.Trend(o.Outbox.Backlog()), c.Plots()
	}
	o.Sparks = map[string]*plot.Plot{}
	for name, h := range o.went {
		o.Sparks[name] = (&plot.Course{Span: shown, Now: now, History: h}).Spark(name)
	}
}

// consumerFindings returns the pauses of consumers, and the messages that they gave up.
func consumerFindings(view *overviewView, now time.Time) (list []finding) {
	for _, st := range view.Consumers {
		if p := st.Pause; p.IsSet() && len(st.Troubles()) == 0 { // a long pause is a trouble, which stands above
			text := st.Stats.Consumer + " is paused by " + p.Actor + " for " + words.Short(now.Sub(p.Since)) + ": " + words.Cause(p.Reason)
			list = append(list, finding{State: stateWarn, Text: text, Href: pageConsumers, Word: wordLook, Ahead: outlook.OfKind(ops.ConsumerPaused)})
		}
		if st.DeadLetters > 0 {
			s := selection{Selection: ops.Selection{Box: ops.BoxInbox, Consumer: st.Stats.Consumer}}
			text := st.Stats.Consumer + " gave up " + words.Counted(int64(st.DeadLetters), "message", "messages") + view.deadOf(st.Stats.Consumer) + "."
			list = append(list, finding{
				State: stateBad, Text: text, Href: "dead?" + s.Values().Encode(), Word: "decide", Ahead: outlook.OfKind(ops.MessageDead),
			})
		}
	}
	return list
}

// deadOf names the type and the error of a consumer's dead letters, "" if no cause has them.
func (o *overviewView) deadOf(name string) string {
	for n := range o.Causes {
		c := &o.Causes[n]
		if c.Kind != ops.MessageDead || c.Consumer != name {
			continue
		}
		text := ": " + c.Type
		if c.Count == 1 && c.Tenant != "" {
			text += " of the tenant " + c.Tenant
		}
		return text + ", " + words.Cause(c.Text)
	}
	return ""
}

// findings returns what an operator should look at, the most serious first.
func findings(view *overviewView, now time.Time) (list []finding) {
	add := func(state, text, href, ahead string) {
		word := wordLook
		if state == stateBad {
			word = "decide"
		}
		list = append(list, finding{State: state, Text: text, Href: href, Word: word, Ahead: ahead})
	}
	down := func(text string, kind ops.Kind) finding {
		return finding{State: stateBad, Text: text, Href: pageStuck, Word: "down", Ahead: outlook.OfKind(kind)}
	}
	away := outage.Of(view.processes, consumer.States(view.Consumers))
	var under []finding // what follows from the outage
	put := func(f finding, follows bool) {
		if follows {
			under = append(under, f)
		} else {
			list = append(list, f)
		}
	}
	for n := range view.Overdue {
		o, kind := &view.Overdue[n], ops.RelayMissing
		if o.Relayed {
			kind = ops.RelayLate
		}
		put(down(view.overdue(o, now), kind), away.Covers(kind))
	}
	for _, f := range consumer.Down(view.Consumers, now) {
		put(down(f.Text, f.Kind), away.Covers(f.Kind))
	}
	for n := range view.processes {
		if p := &view.processes[n]; !p.Alive {
			add(stateWarn, "The process "+p.Name+" has vanished: it was last seen "+words.Ago(now, p.SeenAt)+".", pageProcesses,
				"The other processes take its work over. It leaves this list within a day.")
		}
	}
	for _, text := range consumer.Behind(view.Consumers, now) {
		add(stateWarn, text, pageConsumers, outlook.OfKind(ops.ConsumerBehind))
	}
	unknown, reading := consumer.Unknown(view.Consumers, now)
	for _, name := range unknown {
		put(finding{State: stateWarn, Text: "Nobody knows what waits for " + name + " at the broker.", Href: pageStuck, Word: wordLook}, away.Mute || away.Deaf)
	}
	if len(reading) > 0 {
		put(finding{
			State: statePlain, Text: "How many messages wait for " + strings.Join(reading, ", ") + " at the broker is read again, because they have just connected.",
			Href: pageConsumers, Word: "wait", Ahead: "The numbers come by themselves, within a minute.",
		}, away.Mute || away.Deaf)
	}
	if text := away.Line(view.waiting()); text != "" {
		list = append([]finding{{
			State: stateBad, Text: text + ": " + words.Cause(away.Error), Href: pageProcesses, Word: "down", Ahead: outlook.Outage(), Under: under,
		}}, list...)
	}
	if o := view.Outbox; o != nil && o.Dead > 0 {
		add(stateBad, words.Counted(o.Dead, "event", "events")+" could not be published.", "dead?box=outbox", outlook.OfKind(ops.EventDead))
	}
	list = append(list, consumerFindings(view, now)...)
	if n := len(view.Unknown); n > 0 {
		add(stateBad, "Nobody knows the outcome of "+words.Counted(int64(n), "step of a request", "steps of requests")+".", "keys", outlook.OfKind(ops.StepUnknown))
	}
	if o := view.Outbox; o != nil && o.OldestAge > late && len(view.Overdue) == 0 {
		add(stateWarn, "An event has waited for "+words.Short(o.OldestAge)+".", pageStuck, outlook.OfKind(ops.RelayLate))
	}
	if o := view.Outbox; o != nil && o.TenantsPaused > 0 {
		add(stateWarn, words.Counted(int64(o.TenantsPaused), "tenant is paused", "tenants are paused")+", and "+
			words.Counted(o.Paused, "event waits", "events wait")+" for that.", pageTenants, outlook.OfKind(ops.TenantPaused))
	}
	if o := view.Outbox; o != nil && o.SnapshotAge > ops.LongTransaction {
		add(stateWarn, "A database transaction has been open for "+words.Short(o.SnapshotAge)+", and the outbox becomes slower. "+
			"The command oncebox doctor shows which one.",
			pageStuck, "")
	}
	fails := failing(causes.Together(view.Causes), view.processes, now)
	if len(fails) > 0 {
		for _, text := range processes.Mixed(view.processes) {
			add(stateWarn, text+" An older version may refuse what a newer one sends.", pageProcesses, "")
		}
	}
	return append(list, fails...)
}

// waiting returns how many events should be published.
func (o *overviewView) waiting() int64 {
	if o.Outbox == nil {
		return 0
	}
	return o.Outbox.Backlog()
}

// overdue says for how long events have waited, and why.
func (o *overviewView) overdue(late *outboxstate.Overdue, now time.Time) string {
	waits := "events have waited for " + words.Short(now.Sub(late.Since))
	switch {
	case late.Relayed && late.Error != "" && !late.FailingSince.IsZero():
		return o.brokerOf(late.Owner) + " has taken nothing since " + late.FailingSince.UTC().Format("15:04:05") + " UTC (relay " + late.Owner + "), and " +
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
func (o *overviewView) brokerOf(relay string) string {
	for n := range o.processes {
		if p := &o.processes[n]; p.Relay == relay && p.Broker != "" {
			return p.Broker
		}
	}
	return "The broker"
}

// mostFailing is how many causes of failures the first page shows.
const mostFailing = 5

// failing returns a line for each cause of failures that are tried again.
func failing(all []ops.Cause, run []processes.Process, now time.Time) (list []finding) {
	others := 0
	for i := range all {
		c := &all[i]
		if c.Kind != ops.MessageFailing && c.Kind != ops.EventFailing {
			continue
		}
		if len(list) == mostFailing {
			others++
			continue
		}
		list = append(list, finding{
			State: stateWarn, Text: causes.Line(c, now) + ".", Href: causes.Shows(c), Word: wordLook, Ahead: outlook.Of(&c.Stuck),
			Versions: processes.FailsIn(run, c.Consumer, c.FailedBy), Said: causes.Said(c.Failures),
		})
	}
	if others > 0 {
		text := "More fails, for " + words.Counted(int64(others), "other reason", "other reasons") + "."
		list = append(list, finding{State: stateWarn, Text: text, Href: causes.ListPage, Word: wordLook})
	}
	return list
}

// DeadAtConsumers returns the number of dead letters of all consumers, with a plus if there may be more: counting stops at a bound for each consumer.
func (o *overviewView) DeadAtConsumers() string {
	n, more := 0, ""
	for _, st := range o.Consumers {
		n += st.DeadLetters
		if st.DeadLetters > 0 && st.DeadLetters >= st.Counted {
			more = "+"
		}
	}
	return words.Group(int64(n)) + more
}

// Counting explains the numbers of a broker that counts batches, "" if there is none.
func (o *overviewView) Counting() string {
	precision := count.Exact
	for n := range o.Consumers {
		for _, t := range o.Consumers[n].Topics {
			precision = max(precision, t.Waiting.Precision)
		}
	}
	return map[count.Precision]string{
		count.Estimated: "About: the broker counts batches. How many messages these have is estimated from some of them.",
		count.AtLeast:   "At least: the broker counts batches, and each has one message or more.",
	}[precision]
}
