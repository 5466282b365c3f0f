package console

import (
	"cmp"
	"net/url"
	"slices"
	"time"

	"github.com/oncebox/oncebox/console/internal/plot"
	"github.com/oncebox/oncebox/ops"
)

const (
	// sample is how many dead letters of each box are read, the latest ones, to group their errors.
	sample = 500
	// mostKinds is how many groups are shown.
	mostKinds = 8
	// errorsOver is the time over which the errors of a group are drawn, a bar for each hour.
	errorsOver = 24 * time.Hour
)

// kind is a group of errors whose texts differ only in numbers, ids and quotations.
type kind struct {
	Text   string
	Box    ops.Box
	Where  string
	Type   string // event type of the latest error
	Count  int
	Latest time.Time
	Plot   *plot.Plot
	// GoesOn is true for failures that are tried again. Latest is then the time since when the oldest of them waits, and Next when the
	// first is tried.
	GoesOn bool
	More   bool
	Next   time.Time
	// Link is the address of a list: of the dead letters with the group's common text, or of the things that are stuck for this reason.
	Link string
}

// failure is the error of one dead letter, of either box.
type failure struct {
	box                  ops.Box
	consumer, kind, text string
	at                   time.Time
}

// kindsOf groups errors by place and kind, the largest group first.
func kindsOf(now time.Time, all []failure) []*kind {
	// The key has the place as well as the text: the same error at two consumers has two causes to look for. NUL separates, because no part can contain it.
	found := map[string]*kind{}
	var list []*kind
	for _, f := range all {
		text := ops.CauseOf(f.text)
		key := string(f.box) + "\x00" + f.consumer + "\x00" + text
		k := found[key]
		if k == nil {
			s := selection{Selection: ops.Selection{Box: f.box, Consumer: f.consumer, Error: ops.CommonPart(f.text)}}
			k = &kind{Text: text, Box: f.box, Where: whereRelay, Type: f.kind, Latest: f.at, Plot: newErrorPlot(now), Link: "dead?" + s.Values().Encode()}
			if f.box == ops.BoxInbox {
				k.Where = "consumer " + f.consumer
			}
			found[key] = k
			list = append(list, k)
		}
		k.Count++
		k.Plot.Count(f.at)
	}
	slices.SortStableFunc(list, func(a, b *kind) int { return cmp.Compare(b.Count, a.Count) })
	return list[:min(len(list), mostKinds)]
}

// newErrorPlot returns a plot of no error.
func newErrorPlot(now time.Time) *plot.Plot {
	p := plot.New("Errors", "errors", now, errorsOver, time.Hour)
	p.Bars = true
	values := p.Add("dead letters", "", int(errorsOver/time.Hour)).Values
	for n := range values {
		values[n] = 0
	}
	return p
}

// goingOn returns a group for each cause of failures that are tried again, the largest first. Other causes have lines of their own among the findings.
func goingOn(causes []ops.Cause) (list []*kind) {
	for i := range causes {
		c := &causes[i]
		if c.Kind != ops.MessageFailing && c.Kind != ops.EventFailing {
			continue
		}
		k := &kind{
			Text: ops.CauseOf(c.Error), Box: ops.BoxOutbox, Where: whereRelay, Type: c.Type, Count: c.Count, More: c.More,
			Latest: c.Since, Next: c.Next, GoesOn: true,
			Link: eachOf(c),
		}
		if c.Kind == ops.MessageFailing {
			k.Box, k.Where = ops.BoxInbox, "consumer "+c.Consumer
		}
		list = append(list, k)
	}
	slices.SortStableFunc(list, func(a, b *kind) int { return cmp.Compare(b.Count, a.Count) })
	return list
}

// eachOf returns the address of the list of everything that is stuck for one reason.
func eachOf(c *ops.Cause) string {
	q := url.Values{"each": {"1"}, "kind": {string(c.Kind)}, "cause": {ops.CauseOf(c.Error)}}
	for field, value := range map[string]string{fieldConsumer: c.Consumer, "step": c.Step} {
		if value != "" {
			q.Set(field, value)
		}
	}
	// Causes of a consumer have no topic here: the link has to find its failures at all topics. Refused events are grouped by topic.
	if c.Consumer == "" && c.Topic != "" {
		q.Set(fieldTopic, c.Topic)
	}
	return pageStuck + "?" + q.Encode()
}

// readKinds reads and groups the latest errors. Failures that are tried again come first: they can still succeed, so mending the cause now saves them from
// becoming dead letters. It reads at most 500 rows of each box, however many there are.
func readKinds(v *visit, causes []ops.Cause) ([]*kind, error) {
	var all []failure
	if v.cfg.Outbox != nil {
		list, err := v.cfg.Outbox.Dead().Errors(v.Context(), sample)
		if err != nil {
			return nil, err
		}
		for _, d := range list {
			all = append(all, failure{ops.BoxOutbox, "", d.Type, d.Error, d.DiedAt})
		}
	}
	if v.cfg.Inbox != nil {
		list, err := v.cfg.Inbox.Dead().Errors(v.Context(), sample)
		if err != nil {
			return nil, err
		}
		for _, d := range list {
			all = append(all, failure{ops.BoxInbox, d.Consumer, d.Type, d.Error, d.DiedAt})
		}
	}
	list := append(goingOn(causes), kindsOf(v.now, all)...)
	return list[:min(len(list), mostKinds)], nil
}
