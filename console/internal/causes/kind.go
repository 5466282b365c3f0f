package causes

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/oncebox/oncebox/console/internal/plot"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/outbox"
)

const (
	// Sample is how many dead letters of each box are read for the plots, the latest ones.
	Sample = 500
	// mostKinds is how many kinds are shown.
	mostKinds = 8
	// errorsOver is the time over which errors are drawn, a bar for each hour.
	errorsOver = 24 * time.Hour
)

// Kind is a row of the overview: the dead letters of one cause, or its failures with another try ahead.
type Kind struct {
	ops.Cause

	Where  string
	Latest time.Time
	Plot   *plot.Plot // of dead letters
	// GoesOn is true for failures that are tried again. Latest is then the time since when the oldest of them fails.
	GoesOn bool
	Link   string
}

// Kinds returns the failures among causes with their plots. Failures that are tried again come first: they can still succeed, so mending the cause now
// saves them from becoming dead letters. It reads at most [Sample] rows of each box, however many there are. A store may be nil.
func Kinds(ctx context.Context, now time.Time, all []ops.Cause, events *outbox.Store, messages *inbox.Inbox) ([]*Kind, error) {
	var list []*Kind
	for n := range all {
		c := &all[n]
		if c.Failures == nil {
			continue
		}
		row := RowOf(c.Failures, nil)
		k := &Kind{Cause: *c, Where: row.Where(), Latest: c.Since, Link: row.Href(), Plot: newPlot(now)}
		k.Text = row.LatestError
		switch c.Kind {
		case ops.EventFailing, ops.MessageFailing:
			k.GoesOn = true
		default:
			k.Latest = c.Failures.Dead.Last
		}
		list = append(list, k)
	}
	slices.SortStableFunc(list, func(a, b *Kind) int {
		if a.GoesOn != b.GoesOn {
			return map[bool]int{true: -1, false: 1}[a.GoesOn]
		}
		return cmp.Compare(b.Count, a.Count)
	})
	list = list[:min(len(list), mostKinds)]
	return list, draw(ctx, list, events, messages)
}

// newPlot returns a plot of no error.
func newPlot(now time.Time) *plot.Plot {
	p := plot.New("Errors", "errors", now, errorsOver, time.Hour)
	p.Bars = true
	values := p.Add("dead letters", "", int(errorsOver/time.Hour)).Values
	for n := range values {
		values[n] = 0
	}
	return p
}

// draw adds the latest dead letters to the plots of their kinds.
func draw(ctx context.Context, list []*Kind, events *outbox.Store, messages *inbox.Inbox) error {
	if !slices.ContainsFunc(list, func(k *Kind) bool { return !k.GoesOn }) {
		return nil
	}
	var latest []operator.DeadError
	if events != nil {
		found, err := events.Dead().Errors(ctx, Sample)
		if err != nil {
			return err
		}
		latest = append(latest, found...)
	}
	if messages != nil {
		found, err := messages.Dead().Errors(ctx, Sample)
		if err != nil {
			return err
		}
		latest = append(latest, found...)
	}
	for n := range latest {
		for _, k := range list {
			if !k.GoesOn && k.Fingerprint == latest[n].Fingerprint {
				k.Plot.Count(latest[n].DiedAt)
			}
		}
	}
	return nil
}
