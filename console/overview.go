package console

import (
	"cmp"
	"net/url"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/console/internal/causes"
	"github.com/oncebox/oncebox/console/internal/consumer"
	"github.com/oncebox/oncebox/console/internal/findings"
	"github.com/oncebox/oncebox/console/internal/flood"
	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/console/internal/plot"
	"github.com/oncebox/oncebox/console/internal/trend"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/messaging/count"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/ops/processes"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
	"github.com/oncebox/oncebox/outbox/tenants"
)

// overviewView is the data of the first page.
type overviewView struct {
	Outbox    *outboxstate.Stats
	Overdue   []outboxstate.Overdue
	Consumers []consumer.Row
	Unknown   []idempotency.Unknown
	Kinds     []*causes.Kind
	Causes    []ops.Cause // the causes of stuck things
	Findings  []findings.Finding

	HasInbox, HasKeys bool

	AtBroker, LateAtBroker string // see consumer.Waits
	NoBroker               bool

	// Trend says whether the backlog grows, "" if that is not known. Plots, and Sparks by consumer, show how the figures went over the time that is the
	// current one of Spans.
	Trend  string
	Plots  []*plot.Plot
	Sparks map[string]*plot.Plot
	Spans  []tab

	paused    []tenants.Pause
	archived  []failures.Group
	floods    []flood.Flood
	processes []processes.Process
	history   operator.History            // of the outbox
	went      map[string]operator.History // of the consumers
}

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
			view.paused, err = v.cfg.Outbox.Tenants().Paused(ctx)
			return err
		})
		reads.Go(func() (err error) {
			view.Overdue, err = v.cfg.Outbox.State().Overdue(ctx)
			return err
		})
	}
	if view.HasInbox {
		reads.Go(func() (err error) {
			if view.Consumers, err = consumer.Read(ctx, v.cfg.Outbox, v.cfg.Inbox); err == nil {
				view.floods, err = flood.Read(ctx, v.now, v.cfg.Outbox, v.cfg.Inbox, consumer.States(view.Consumers))
			}
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
		if view.Causes, view.archived, err = v.view().Causes(ctx, ops.Filter{}); err == nil {
			view.Kinds, err = causes.Kinds(ctx, v.now, view.Causes, v.cfg.Outbox, v.cfg.Inbox)
		}
		return err
	})
	if err := reads.Wait(); err != nil {
		return err
	}
	view.draw(shown, v.now)
	facts := &findings.Facts{
		Now: v.now, Act: v.access.Act, Outbox: view.Outbox, Trend: view.Trend, Overdue: view.Overdue, Paused: view.paused, Consumers: view.Consumers,
		Floods: view.floods, Processes: view.processes, Causes: view.Causes, Archived: view.archived, UnknownSteps: len(view.Unknown),
		History: view.history, Went: view.went,
	}
	view.Findings = facts.List()
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
		o.Trend, o.Plots = trend.Of(&o.history, o.Outbox.Backlog(), now).Word, c.Plots()
	}
	o.Sparks = map[string]*plot.Plot{}
	for name, h := range o.went {
		o.Sparks[name] = (&plot.Course{Span: shown, Now: now, History: h}).Spark(name)
	}
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
