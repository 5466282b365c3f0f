package stuck

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/ops"
)

// printStuck prints the causes, or the items if there are any. It ends with the total number of stuck things, also of things
// that were not printed. The exit code is ExitFindings if anything is stuck, so a monitor needs no parsing.
func printStuck(s *cli.Session, causes []ops.Cause, items []Item, notes stuckNotes, limit int) error {
	total, more := ops.Total(causes)
	reasons := len(causes)
	if items == nil {
		others, err := printOutage(s, causes, &notes)
		if err != nil {
			return err
		}
		if len(others) < len(causes) {
			reasons = len(others) + 1
		}
		causes = others
	}
	shown, of := min(len(causes), limit), len(causes)
	var err error
	if items != nil {
		shown, of = len(items), total
		err = cli.Each(s, items, printOne)
	} else {
		err = printCauses(s, causes[:shown])
	}
	if err != nil {
		return err
	}
	if err := printNotes(s, total, notes); err != nil || total == 0 {
		return err
	}
	if shown < of {
		fmt.Fprintf(s.Errs, "%d of %d shown: --limit %d shows all.\n", shown, of, of)
	}
	text := cli.Several(total, "thing is stuck", "things are stuck")
	if more {
		text = fmt.Sprintf("%d or more things are stuck", total)
	}
	if reasons < total {
		text += ", for " + cli.Several(reasons, "reason", "reasons")
	}
	return cli.Exit(cli.ExitFindings, errors.New(text))
}

// printOutage prints an outage of the broker as one entry, and returns the causes that do not follow from it.
func printOutage(s *cli.Session, causes []ops.Cause, notes *stuckNotes) (others []ops.Cause, err error) {
	line := notes.away.Line(notes.waiting)
	if line == "" {
		return causes, nil
	}
	var follow []string
	for n := range causes {
		c := &causes[n]
		switch {
		case !notes.away.Covers(c.Kind):
			others = append(others, *c)
		case c.Consumer != "":
			follow = append(follow, cli.Join(string(c.Kind)+":", c.Consumer, c.Topic))
		default:
			follow = append(follow, cli.Join(string(c.Kind)+":", c.Relay))
		}
	}
	if len(follow) == 0 {
		return causes, nil
	}
	err = s.Pairs("broker away", line, "error", cli.Short(notes.away.Error, 200), "so", strings.Join(follow, ", "),
		"to do", "mend the broker or the connection to it; everything goes on by itself; to list each: "+s.Typed("stuck", "--each"))
	if err == nil && len(others) > 0 {
		_, err = fmt.Fprintln(s.Out)
	}
	return others, err
}

// printCauses prints a single thing in full, and a group with its common text and one example.
func printCauses(s *cli.Session, causes []ops.Cause) error {
	for n := range causes {
		if n > 0 {
			fmt.Fprintln(s.Out)
		}
		c := &causes[n]
		if c.Count == 1 {
			item := itemOf(s.Program, &c.Stuck)
			item.note, item.back = said(c)
			if err := printOne(s, &item); err != nil {
				return err
			}
			continue
		}
		behind := ""
		if c.Holds {
			behind = "later events or messages of their ordering keys wait behind them"
		}
		// The common text leaves ids and numbers out. The whole error of one thing has them.
		example := cli.Short(c.Error, 200)
		if example == c.Text {
			example = ""
		}
		note, back := said(c)
		err := s.Pairs(string(c.Kind), causeLine(c, time.Now()), "for example", example, "the latest", c.Limit, "failed last in",
			strings.Join(c.FailedBy, ", "), "note", note, "archived before", back, "behind it", behind,
			"to do", nextOfMany(s.Program, c))
		if err != nil {
			return err
		}
	}
	return nil
}

// said returns the note about a cause, and who archived it before it came back.
func said(c *ops.Cause) (note, back string) {
	g := c.Failures
	if g == nil {
		return "", ""
	}
	if g.Note != "" {
		note = g.Note + ", by " + g.NotedBy
	}
	if g.IsBack() {
		back = "by " + g.ArchivedBy + " at " + cli.Moment(g.ArchivedAt) + ": " + g.ArchivedWhy
	}
	return note, back
}

// causeLine returns a cause in one line: where, how many, why, since when, and when the next try is.
func causeLine(c *ops.Cause, now time.Time) string {
	where, what := "topic "+c.Topic, "events are refused"
	switch c.Kind {
	case ops.EventDead:
		what = "dead letters"
	case ops.MessageDead:
		where, what = c.Consumer, "dead letters"
	case ops.MessageFailing:
		where, what = c.Consumer, "ordering keys fail"
	case ops.StepUnknown:
		where, what = "step "+c.Step, "requests are refused, because it is unknown whether the step was done"
	case ops.EventFailing, ops.RelayMissing, ops.RelayLate, ops.ConsumerMissing, ops.ConsumerAway, ops.ConsumerLate, ops.ConsumerBehind,
		ops.ConsumerPaused, ops.TenantPaused:
	}
	more := ""
	if c.More {
		more = " or more"
	}
	line := fmt.Sprintf("%s: %d%s %s", where, c.Count, more, what)
	if c.Text != "" {
		line += fmt.Sprintf(", %q", c.Text)
	}
	if !c.Since.IsZero() {
		line += ", since " + cli.Moment(c.Since)
	}
	if !c.Next.IsZero() {
		line += ", next try " + in(c.Next.Sub(now))
	}
	return line
}

// in formats how far in the future a time is.
// The next try of a group is the earliest of its things, and may be over by now.
func in(d time.Duration) string {
	if d < time.Second {
		return "now"
	}
	return "in " + d.Round(time.Second).String()
}

// printOne prints everything that is known of one stuck thing. For a part that does not run it says in words what is
// wrong, because there is no event with a type.
func printOne(s *cli.Session, i *Item) error {
	what := i.Type
	switch {
	case i.Kind == ops.RelayMissing:
		what = "events wait, and no process publishes them"
	case i.Kind == ops.RelayLate && i.Error != "":
		what = "events wait: a relay is responsible for them, but the broker or the topic does not accept them"
	case i.Kind == ops.RelayLate:
		what = "events wait: a relay is responsible for them, but the broker has a problem or the relay is too slow"
	case i.Kind == ops.ConsumerMissing && i.Vanished:
		what = "the processes that run " + i.Consumer + " have vanished"
	case i.Kind == ops.ConsumerMissing:
		what = "no process runs " + i.Consumer
	case i.Kind == ops.ConsumerAway:
		what = i.Consumer + " lacks connections to the broker"
	case i.Kind == ops.ConsumerLate:
		what = i.Consumer + " is connected, but makes no progress"
	case i.Kind == ops.ConsumerBehind:
		what = i.Consumer + " is behind"
	case i.Kind == ops.ConsumerPaused:
		what = i.Consumer + " handles no messages"
	case i.Kind == ops.StepUnknown:
		what = "requests with the key are refused"
	case i.Kind == ops.TenantPaused:
		what = "its events are not published"
	case i.Consumer != "":
		what = cli.Join(what, "at consumer "+i.Consumer)
	}
	width := 200
	if i.Kind == ops.ConsumerBehind {
		width = 600 // the text names tenants
	}
	behind := ""
	if i.Holds {
		behind = "later events or messages of the ordering key " + i.Key + " wait behind it"
	}
	tries := ""
	if i.Attempts > 0 {
		tries = strconv.Itoa(i.Attempts)
	}
	tries = cmp.Or(i.Limit, tries)
	relay := i.Relay
	if relay != "" && i.Kind == ops.RelayMissing {
		relay += " had the lanes, and vanished"
	}
	return s.Pairs(string(i.Kind), what, "since", cli.At(i.Since), "relay", relay, "id", i.ID, "topic", i.Topic, "tenant", i.Tenant,
		"request", i.Request, "asked by", cli.AskedBy(i.Caller, i.Principal), "step", i.Step, "about", i.Label, "behind it", behind,
		"tries", tries, "failed last in", strings.Join(i.FailedBy, ", "), "next try", cli.At(i.Next),
		"error", cli.Short(i.Error, width), "note", i.note, "archived before", i.back, "to do", i.Do, "or", i.Or)
}
