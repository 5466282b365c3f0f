package findings

import (
	"slices"
	"strings"

	"github.com/oncebox/oncebox/console/internal/causes"
	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/console/internal/outlook"
	"github.com/oncebox/oncebox/console/internal/skin"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/ops/processes"
)

const (
	// mostFailing is how many causes of failures the first page shows.
	mostFailing = 5
	// manyKeys is how many ordering keys must fail: a consumer with less of them, and that handles nothing, may have nothing else to do.
	manyKeys = 10
)

// fails returns a line for each cause of failures that are tried again. What fails in one of several versions only is one line.
func (f *Facts) fails() (list []Finding) {
	all := slices.DeleteFunc(causes.Together(f.Causes), func(c ops.Cause) bool { return c.Kind != ops.MessageFailing && c.Kind != ops.EventFailing })
	if len(all) == 0 {
		return nil
	}
	mixed := processes.Mixed(f.Processes)
	list, all = f.versions(mixed, all)
	for n := range all {
		if n == mostFailing {
			text := "More fails, for " + words.Counted(int64(len(all)-n), "other reason", "other reasons") + "."
			return append(list, look(text, causes.ListPage, ""))
		}
		list = append(list, f.failing(&all[n]))
	}
	return list
}

// versions returns the lines about services that run in several versions, and the causes of failures that do not come from that. With several services it
// is not known of which one a cause is.
func (f *Facts) versions(mixed []string, all []ops.Cause) (list []Finding, others []ops.Cause) {
	const why = " An older version may refuse what a newer one sends."
	if len(mixed) != 1 {
		for _, text := range mixed {
			list = append(list, look(text+why, frame.Processes, ""))
		}
		return list, all
	}
	line := look(mixed[0], frame.Processes, outlook.OfKind(ops.MessageFailing))
	count, more := 0, false
	var names, failedBy []string
	for n := range all {
		c := &all[n]
		if _, runs := processes.FailsIn(f.Processes, c.Consumer, c.FailedBy); !runs {
			others = append(others, *c)
			continue
		}
		line.Under, count, more = append(line.Under, f.failing(c)), count+c.Count, more || c.More
		names, failedBy = append(names, c.Consumer), append(failedBy, c.FailedBy...)
	}
	if len(line.Under) == 0 {
		return []Finding{look(mixed[0]+why, frame.Processes, "")}, others
	}
	slices.Sort(names)
	slices.Sort(failedBy)
	names, failedBy = slices.Compact(names), slices.Compact(failedBy)
	sum := ops.Cause{Stuck: ops.Stuck{Kind: ops.MessageFailing}, Count: count, More: more}
	line.Text += " " + causes.Many(&sum) + " at " + strings.Join(names, ", ") + "." + why
	line.Versions, _ = processes.FailsIn(f.Processes, names[0], failedBy)
	return []Finding{line}, others
}

// failing returns the line about a cause.
func (f *Facts) failing(c *ops.Cause) Finding {
	h := f.History
	if c.Consumer != "" {
		h = f.Went[state.Family(c.Consumer)]
	}
	place := &causes.Place{Figures: h.Figures, Causes: f.Causes, Archived: f.Archived}
	line := look(causes.Line(c, place.Began(c, f.Now), f.Now)+".", causes.Shows(c), outlook.Of(&c.Stuck))
	line.Versions, _ = processes.FailsIn(f.Processes, c.Consumer, c.FailedBy)
	line.Said = causes.Said(c.Failures)
	if c.Consumer == "" {
		line.Text = "topic " + c.Topic + ": " + line.Text
		return line
	}
	line.Who = who(c.Consumer)
	line.Who[0].Name += ":"
	if c.Count >= manyKeys && outlook.HandlesNothing(&h, f.Now) {
		line.State, line.Word, line.Text = skin.Bad, wordDown, line.Text+" It handles nothing: every try fails."
	}
	return line
}
