package consumer

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/console/internal/causes"
	"github.com/oncebox/oncebox/console/internal/flood"
	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/console/internal/plot"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/ops/processes"
	"github.com/oncebox/oncebox/outbox"
)

// The page of one consumer, and its parameter with the consumer's name.
const (
	Page  = "consumer"
	Field = "name"
)

// ErrUnknown says that there is no consumer with the name: none has run, and no message waits for it.
var ErrUnknown = errors.New("consumer: unknown name")

// Href returns the address of the page of a consumer.
func Href(name string) string { return frame.Address(Page, url.Values{Field: {name}}) }

// View is all that is known of one consumer.
type View struct {
	Row Row

	// Findings say what is wrong with it, in the words of the overview.
	Findings []string
	// Run are the processes that run it.
	Run []processes.Process
	// Fails are the causes for which its messages fail or are dead letters.
	Fails []Fail
	// Rates says how many messages it handled lately, and Extent which part failed. "": unknown, or none failed.
	Rates, Extent string
	// Course says how what waits at the broker changes. "": unknown, or nothing waits.
	Course string
	Plots  []*plot.Plot
}

// Fail is a cause of failures. RetryAll is the address of the form that tries all its messages at once, "" for dead letters.
type Fail struct {
	Text, Href, RetryAll string
}

// ReadView reads what is known of a consumer. all are the causes of its failures, and archived the groups that the page leaves out.
// It returns [ErrUnknown] for an unknown name.
func ReadView(ctx context.Context, now time.Time, span plot.Span, db *bun.DB, events *outbox.Store, box *inbox.Inbox, name string, all []ops.Cause,
	archived []failures.Group,
) (*View, error) {
	row, err := readOne(ctx, events, box, name)
	if err != nil {
		return nil, err
	}
	v := &View{Row: row}
	for _, f := range v.Row.down(now) {
		v.Findings = append(v.Findings, f.Text)
	}
	floods, err := flood.Read(ctx, now, events, box, []state.Consumer{v.Row.Consumer})
	if err != nil {
		return nil, err
	}
	for n := range floods {
		v.Findings = append(v.Findings, "It "+floods[n].Text(now))
	}
	run, err := processes.List(ctx, db, events, box)
	if err != nil {
		return nil, err
	}
	for n := range run {
		if slices.ContainsFunc(run[n].Consumers, func(r processes.Running) bool { return r.Consumer == name }) {
			v.Run = append(v.Run, run[n])
		}
	}
	histories, err := box.State().History(ctx, span.Length)
	if err != nil {
		return nil, err
	}
	h := histories[v.Row.Name()]
	place, list := &causes.Place{Figures: h.Figures, Causes: all, Archived: archived}, causes.Together(all)
	for n := range list {
		switch c := &list[n]; c.Kind {
		case ops.MessageFailing:
			v.Fails = append(v.Fails, Fail{causes.Line(c, place.Began(c, now), now), causes.Shows(c), causes.RetryAll(c)})
		case ops.MessageDead:
			v.Fails = append(v.Fails, Fail{causes.Many(c) + ": " + words.Cause(c.Text), causes.Shows(c), ""})
		default: // has its own finding
		}
	}
	went := &went{h.Figures, now}
	v.Rates, v.Extent = went.rates(), went.extent()
	course := plot.Course{Span: span, Now: now, History: h}
	v.Plots = course.OfConsumer()
	if !v.Row.isOutdated {
		v.Course = flood.CourseOf(&v.Row.Consumer, &h, now).Text()
	}
	return v, nil
}

// readOne reads one consumer, as [Read] reads all.
func readOne(ctx context.Context, events *outbox.Store, box *inbox.Inbox, name string) (row Row, err error) {
	known, err := box.State().Consumers(ctx)
	if err != nil {
		return row, err
	}
	if row.Stats, err = box.State().StatsOf(ctx, name); err != nil {
		return row, err
	}
	at := slices.IndexFunc(known, func(c state.Consumer) bool { return c.Consumer == name })
	switch {
	case at >= 0:
		row.Consumer = known[at]
	case row.Waiting+row.Failed+row.Dead+row.Parked+row.DeadLetters == 0:
		return row, ErrUnknown
	}
	moved, err := lastMove(ctx, events)
	if err != nil {
		return row, err
	}
	row.isOutdated = row.IsOutdated(moved)
	return row, row.loads(ctx, events, box)
}

// went is what a consumer did lately: its figures, the oldest first.
type went struct {
	figures []operator.Figures
	now     time.Time
}

// last returns the index of the latest full minute, -1 if nothing was counted in the last five.
func (w *went) last() int {
	for n, f := range slices.Backward(w.figures) {
		end := f.At.Add(f.Span)
		if w.now.Sub(end) > longAgo {
			break
		}
		if !end.After(w.now) && f.Counted > 0 {
			return n
		}
	}
	return -1
}

// longAgo is the age from which a minute does not count as the last one.
const longAgo = 5 * time.Minute

// rates returns the figures of the last full minute.
func (w *went) rates() string {
	n := w.last()
	if n < 0 {
		return ""
	}
	f := &w.figures[n]
	rate, _ := f.PerSecond(f.Went)
	return plot.PerSecond(rate) + " in the minute of " + f.At.UTC().Format("15:04") + " UTC: " + words.Counted(f.Went, "message", "messages") + ", and " +
		words.Counted(f.Failed, "try", "tries") + " failed"
}

// extent says whether all tries failed in the last full minute, or some.
func (w *went) extent() string {
	last := w.last()
	if last < 0 || w.figures[last].Failed == 0 {
		return ""
	}
	f := &w.figures[last]
	if f.Went > 0 {
		return words.Group(f.Failed) + " of " + words.Group(f.Failed+f.Went) + " tries failed in the last full minute."
	}
	for n := last; n >= 0; n-- {
		if w.figures[n].Went > 0 {
			return "Every try fails: no message was handled since " + words.Since(w.now, w.figures[n].At.Add(w.figures[n].Span)) + "."
		}
	}
	return "Every try fails: no message was handled since the beginning of the plot."
}
