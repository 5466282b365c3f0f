package console

import (
	"maps"
	"net/url"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/outbox"
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
		q.Set(fieldBox, counts.box())
	}
	s, err := c.selected(q, v.now)
	if err != nil {
		return invalid(err)
	}
	after, err := cursorOf(q)
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
		view.Next = "dead?" + with(s.Values(), place(&view.Letters[perPage-1]).values()).Encode()
	}
	view.Replay = "bulk?" + with(s.Values(), url.Values{fieldAction: {actionReplay}}).Encode()
	view.Discard = "bulk?" + with(s.Values(), url.Values{fieldAction: {actionDiscard}}).Encode()
	return v.show("dead", "Dead letters", view)
}

// letters reads a page of dead letters without their payloads.
func (c *Console) letters(v *visit, s *selection, after *cursor, limit int) (list []letter, err error) {
	if s.Box == boxInbox {
		var from *inbox.DeadLetter
		if after != nil {
			from = &inbox.DeadLetter{DiedAt: after.at, Key: after.key}
		}
		page, err := c.cfg.Inbox.Dead(v.Context(), s.inbox(), from, limit)
		for n := range page {
			list = append(list, inboxLetter(&page[n]))
		}
		return list, err
	}
	var from *outbox.DeadLetter
	if after != nil {
		from = &outbox.DeadLetter{DiedAt: after.at}
		from.Sequence = after.seq
	}
	page, err := c.cfg.Outbox.Dead(v.Context(), s.outbox(), from, limit)
	for n := range page {
		list = append(list, outboxLetter(&page[n]))
	}
	return list, err
}

func place(l *letter) cursor {
	if l.Ref.Box == boxInbox {
		return cursor{at: l.DiedAt, key: l.Ref.key()}
	}
	return cursor{at: l.DiedAt, seq: l.Envelope.Sequence}
}

// tab is a box that a page can show. Count is how much it has, "" if that is not told.
type tab struct {
	link

	Box, Count string
}

// tabs are the boxes between which a page chooses.
func (c *Console) tabs(page, current string) (tabs []tab) {
	for _, t := range []struct{ box, name string }{{boxOutbox, "Outbox"}, {boxInbox, "Consumers"}} {
		if c.hasBox(t.box) != nil {
			continue
		}
		l := tab{link: link{Name: t.name, Href: page + "?box=" + t.box}, Box: t.box}
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
