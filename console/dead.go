package console

import (
	"context"
	"maps"
	"net/url"

	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

// perPage is how many rows a list shows.
const perPage = 50

// deadView is a page of dead letters.
type deadView struct {
	Selection *selection
	Letters   []letter
	Tabs      []tab
	Elsewhere int64  // dead letters of the other box
	First     string // the address of the first page, "" on it
	Next      string // that of the next one, "" on the last
	Notice    string
	Life      string // the address of the page about what the notice tells of
	// Replay and Discard are the addresses for all that the selection has.
	Replay, Discard string
}

// dead lists dead letters, the oldest first.
func (c *Console) dead(v *visit) error {
	q := v.URL.Query()
	counts, err := c.countDead(v.Context())
	if err != nil {
		return err
	}
	if q.Get(fieldBox) == "" {
		q.Set(fieldBox, string(counts.box()))
	}
	s, err := c.selected(q, v.now)
	if err != nil {
		return invalid(err)
	}
	after, err := afterOf(q)
	if err != nil {
		return invalid(err)
	}
	view := &deadView{Selection: &s, Tabs: c.tabs("dead", s.Box), Elsewhere: counts.elsewhere(s.Box), Notice: notice(q), Life: lifeOf(q)}
	counts.show(view.Tabs)
	if view.Letters, err = c.letters(v, &s, after, perPage+1); err != nil {
		return err
	}
	if after != nil {
		view.First = "dead?" + s.Values().Encode()
	}
	if len(view.Letters) > perPage {
		view.Letters = view.Letters[:perPage]
		view.Next = "dead?" + with(s.Values(), placeOf(&view.Letters[perPage-1])).Encode()
	}
	view.Replay = "bulk?" + with(s.Values(), url.Values{fieldAction: {string(operator.Replay)}}).Encode()
	view.Discard = "bulk?" + with(s.Values(), url.Values{fieldAction: {string(operator.Discard)}}).Encode()
	return v.show("dead", "Dead letters", view)
}

// letters reads a page of dead letters without their payloads.
func (c *Console) letters(v *visit, s *selection, after *ops.Letter, limit int) ([]letter, error) {
	page, err := c.view().Dead().List(v.Context(), s.Box, s.filter, after, limit)
	list := make([]letter, len(page))
	for n := range page {
		list[n] = letterOf(page[n])
	}
	return list, err
}

// tab is a box that a page can show. Count is how much it has, "" if that is not told.
type tab struct {
	link

	Box   ops.Box
	Count string
}

// tabs are the boxes between which a page chooses.
func (c *Console) tabs(page string, current ops.Box) (tabs []tab) {
	for _, t := range []struct {
		box  ops.Box
		name string
	}{{ops.BoxOutbox, "Outbox"}, {ops.BoxInbox, "Consumers"}} {
		if c.hasBox(t.box) != nil {
			continue
		}
		l := tab{link: link{Name: t.name, Href: page + "?box=" + string(t.box)}, Box: t.box}
		if t.box == current {
			l.Class = classCurrent
		}
		tabs = append(tabs, l)
	}
	return tabs
}

// with returns q with the values of more.
func with(q, more url.Values) url.Values {
	all := maps.Clone(q)
	maps.Copy(all, more)
	return all
}

// deadCounts are how many dead letters each box has, and whether there may be more.
type deadCounts struct {
	hasOutbox, hasInbox bool
	outbox, inbox       int64
	more                bool // at consumers
}

// countDead counts both boxes, with a bound: exact up to 10,000.
func (c *Console) countDead(ctx context.Context) (n deadCounts, err error) {
	if n.hasOutbox = c.cfg.Outbox != nil; n.hasOutbox {
		st, err := c.cfg.Outbox.Stats(ctx)
		if err != nil {
			return n, err
		}
		n.outbox = st.Dead
	}
	if n.hasInbox = c.cfg.Inbox != nil; n.hasInbox {
		stats, err := c.cfg.Inbox.State().Stats(ctx)
		if err != nil {
			return n, err
		}
		for _, st := range stats {
			n.inbox += int64(st.DeadLetters)
			n.more = n.more || st.DeadLetters > 0 && st.DeadLetters >= st.Counted
		}
	}
	return n, nil
}

// box is the one to show first: the first that has some.
func (n deadCounts) box() ops.Box {
	if n.hasOutbox && (n.outbox > 0 || n.inbox == 0) {
		return ops.BoxOutbox
	}
	return ops.BoxInbox
}

func (n deadCounts) elsewhere(box ops.Box) int64 {
	if box == ops.BoxOutbox {
		return n.inbox
	}
	return n.outbox
}

// show puts the numbers on the tabs.
func (n deadCounts) show(tabs []tab) {
	for i := range tabs {
		switch {
		case tabs[i].Box == ops.BoxOutbox:
			tabs[i].Count = group(n.outbox)
		case n.more:
			tabs[i].Count = group(n.inbox) + "+"
		default:
			tabs[i].Count = group(n.inbox)
		}
	}
}
