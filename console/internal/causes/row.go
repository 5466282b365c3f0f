package causes

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
	"github.com/oncebox/oncebox/ops"
)

// Row is a group of failures on a page.
type Row struct {
	failures.Group

	Said string // see [Said]
	// LatestError is the latest error of the cause in full, with the numbers that the failures do not share. Without one it is what they share.
	LatestError string
	// Limit says when the latest failing message is given up. "": that is not known, or nothing fails.
	Limit string
}

// RowOf returns the row of a group.
// limits has the limits of the consumers by name; nil: they are not shown.
func RowOf(g *failures.Group, limits map[string]operator.Limit) Row {
	r := Row{Group: *g, Said: Said(g), LatestError: cmp.Or(g.Example().Error, g.Cause)}
	if l, known := limits[state.Family(g.Consumer)]; known && g.Failing.Count > 0 {
		r.Limit = l.Text(g.Failing.Example.Attempts, g.Failing.First)
	}
	return r
}

// Href returns the address of the page of the cause.
func (r *Row) Href() string { return Href(r.Fingerprint) }

// Box returns the box that has the failures.
func (r *Row) Box() ops.Box {
	if r.Consumer == "" {
		return ops.BoxOutbox
	}
	return ops.BoxInbox
}

// Where returns the consumer, or the topic that refuses events.
func (r *Row) Where() string {
	if r.Consumer == "" {
		return "relay, topic " + r.Topic
	}
	return "consumer " + r.Consumer
}

// Fails returns how many messages or events are tried again, "" if none is.
func (r *Row) Fails() string {
	if r.Consumer == "" {
		return many(ops.EventFailing, r.Failing.Count, r.Failing.More)
	}
	return many(ops.MessageFailing, r.Failing.Count, r.Failing.More)
}

// Died returns the number of dead letters, "" if there is none.
func (r *Row) Died() string { return many(ops.MessageDead, r.Dead.Count, r.Dead.More) }

// Said returns who has archived a cause before it came back, and its note. A nil group has neither.
func Said(g *failures.Group) string {
	var said []string
	if g != nil && g.IsBack() {
		said = append(said, "archived before by "+g.ArchivedBy+": "+words.Cause(g.ArchivedWhy))
	}
	if g != nil && g.Note != "" {
		said = append(said, g.NotedBy+" noted: "+words.Cause(g.Note))
	}
	return strings.Join(said, "; ")
}

// Line returns what fails for a cause and is tried again, with the type of the events, without the place where it fails. since is when that began, zero if
// it is not known.
func Line(c *ops.Cause, since, now time.Time) string {
	text := Many(c) + ", " + words.Cause(cmp.Or(c.Error, c.Text))
	if c.Type != "" {
		text += " (" + c.Type + ")"
	}
	if !since.IsZero() {
		text += ", since " + words.Since(now, since)
	}
	if !c.Next.IsZero() {
		text += ", next try " + words.Due(now, c.Next)
	}
	return text
}

// Many names the things that share a cause, with their number.
func Many(c *ops.Cause) string { return many(c.Kind, c.Count, c.More) }

// Sums says how many things of each kind the causes have, in the words of [Many]. "": they are of one kind.
func Sums(list []ops.Cause) string {
	kinds := []ops.Kind{ops.MessageFailing, ops.EventFailing, ops.MessageDead, ops.StepUnknown, ""}
	sums := make([]ops.Cause, len(kinds)) // the last one: relays, consumers and tenants
	for n := range list {
		kind := list[n].Kind
		if kind == ops.EventDead {
			kind = ops.MessageDead
		}
		at := slices.Index(kinds, kind)
		if at < 0 {
			at = len(kinds) - 1
		}
		sums[at].Count, sums[at].More = sums[at].Count+list[n].Count, sums[at].More || list[n].More
	}
	var parts []string
	for n := range sums {
		if text := many(kinds[n], sums[n].Count, sums[n].More); text != "" {
			parts = append(parts, text)
		}
	}
	if len(parts) < 2 {
		return ""
	}
	return strings.Join(parts, ", ")
}

func many(kind ops.Kind, n int, more bool) string {
	names := map[ops.Kind][2]string{
		ops.MessageFailing: {"ordering key fails", "ordering keys fail"}, ops.EventFailing: {"event is refused", "events are refused"},
		ops.StepUnknown: {"request is refused", "requests are refused"},
		ops.MessageDead: {"dead letter", "dead letters"}, ops.EventDead: {"dead letter", "dead letters"},
		"": {"relay, consumer or tenant", "relays, consumers or tenants"},
	}[kind]
	switch {
	case n == 0:
		return ""
	case more:
		return words.Group(int64(n)) + " or more " + names[1]
	default:
		return words.Counted(int64(n), names[0], names[1])
	}
}
