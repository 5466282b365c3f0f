package console

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/console/internal/causes"
	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
	"github.com/oncebox/oncebox/ops"
)

// perPage is the number of rows on a page of a list.
const perPage = 50

// deadView is the data of a page of dead letters.
type deadView struct {
	Selection *selection
	Letters   []letter
	Tabs      []tab
	Elsewhere string // number of dead letters in the other box, "" if there is none
	Filter    frame.Filter
	Pager     frame.Pager
	Notice    string
	Life      string // address of the page about the event that was treated last
	// Replay and Discard are the addresses that treat all dead letters of the selection.
	Replay, Discard string
}

// showDead lists dead letters, the oldest first.
func showDead(v *visit) error {
	q := v.URL.Query()
	counts := v.numbers()
	if counts.err != nil {
		return counts.err
	}
	if q.Get(fieldBox) == "" {
		q.Set(fieldBox, string(boxWithDead(v.Console, &counts.Menu)))
	}
	s, err := selected(v.Console, q, v.now)
	if err != nil {
		return invalid(err)
	}
	if err := nameCause(v, &s); err != nil {
		return err
	}
	after, err := afterOf(q)
	if err != nil {
		return invalid(err)
	}
	whole := boxOf(s.Box)
	view := &deadView{Selection: &s, Tabs: tabs(v.Console, pageDead, s.Box), Filter: v.filter(s.Values(), whole.Values()), Notice: notice(q), Life: lifeOf(q)}
	for i := range view.Tabs {
		n := deadIn(&counts.Menu, view.Tabs[i].Box)
		view.Tabs[i].Count = menuCount(n)
		if view.Tabs[i].Box != s.Box && n > 0 {
			view.Elsewhere = menuCount(n)
		}
	}
	if view.Letters, err = readLetters(v, &s, after, perPage+1); err != nil {
		return err
	}
	var next url.Values
	if len(view.Letters) > perPage {
		view.Letters = view.Letters[:perPage]
		next = placeOf(&view.Letters[perPage-1])
	}
	view.Pager = frame.NewPager(pageDead, q, s.Values(), len(view.Letters), next)
	if view.Pager.Of == "" {
		n := int64(deadIn(&counts.Menu, s.Box))
		if !s.IsEmpty() {
			if n, err = v.view().Dead().CountTo(v.Context(), s.Box, s.filter, ops.Counted+1); err != nil {
				return err
			}
		}
		view.Pager.Of = menuCount(int(n))
	}
	view.Replay = "bulk?" + frame.With(s.Values(), url.Values{fieldAction: {string(operator.Replay)}}).Encode()
	view.Discard = "bulk?" + frame.With(s.Values(), url.Values{fieldAction: {string(operator.Discard)}}).Encode()
	// Ticks would be lost.
	v.still = v.still || v.access.Act && len(view.Letters) > 0
	return v.show(pageDead, "Dead letters", view)
}

// deadIn returns the number of dead letters in a box.
func deadIn(n *ops.Menu, box ops.Box) int {
	if box == ops.BoxInbox {
		return n.DeadInbox
	}
	return n.DeadOutbox
}

// boxWithDead returns the box to show first: the outbox, unless only consumers have dead letters.
func boxWithDead(c *Console, n *ops.Menu) ops.Box {
	if c.cfg.Outbox != nil && (n.DeadOutbox > 0 || n.DeadInbox == 0) {
		return ops.BoxOutbox
	}
	return ops.BoxInbox
}

// readLetters reads a page of dead letters without their payloads.
func readLetters(v *visit, s *selection, after *ops.Letter, limit int) ([]letter, error) {
	page, err := v.view().Dead().List(v.Context(), s.Box, s.filter, after, limit)
	list := make([]letter, len(page))
	for n := range page {
		list[n] = letterOf(page[n])
	}
	return list, err
}

// tab is a box that the page can show. Count is its number of dead letters, "" if that is not shown.
type tab struct {
	link

	Box   ops.Box
	Count string
}

// tabs returns a tab for each box that the page can show.
func tabs(c *Console, page string, current ops.Box) (tabs []tab) {
	for _, t := range []struct {
		box  ops.Box
		name string
	}{{ops.BoxOutbox, "Outbox"}, {ops.BoxInbox, titleConsumers}} {
		if hasBox(c, t.box) != nil {
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

// selection is a filter of dead letters, as the address of a page contains it.
type selection struct {
	ops.Selection

	filter operator.DeadFilter
	cause  string // the text of the cause with the fingerprint; "": unknown
}

// Names of the filter's fields, in the order of the form.
const (
	fieldBox      = "box"
	fieldError    = "error"
	fieldType     = "type"
	fieldTopic    = "topic"
	fieldConsumer = "consumer"
	fieldTenant   = "tenant"
	fieldSource   = "source"
	fieldID       = "id"
	fieldFrom     = "from"
	fieldBefore   = "before"
	fieldCause    = causes.Field // the fingerprint of a cause
)

// boxOf returns the selection of all dead letters of a box.
func boxOf(box ops.Box) selection { return selection{Selection: ops.Selection{Box: box}} }

// selected reads a filter from a query. Without a box it takes the first box of the console.
func selected(c *Console, q url.Values, now time.Time) (s selection, err error) {
	get := func(field string) string { return strings.TrimSpace(q.Get(field)) }
	s.Selection = ops.Selection{
		Box: ops.Box(get(fieldBox)), Consumer: get(fieldConsumer), Tenant: q.Get(fieldTenant), Topic: get(fieldTopic), Type: get(fieldType),
		ID: get(fieldID), Fingerprint: get(fieldCause), Error: q.Get(fieldError), From: get(fieldFrom), Before: get(fieldBefore),
	}
	if s.Box == "" {
		s.Box = ops.BoxOutbox
		if c.cfg.Outbox == nil {
			s.Box = ops.BoxInbox
		}
	}
	if s.Box == ops.BoxOutbox {
		s.Consumer = ""
	}
	s.filter, err = s.Filter(now, func(f ops.Field) string { return string(f) + ":" })
	return s, errors.Join(hasBox(c, s.Box), err)
}

// nameCause reads the text of the cause that a selection has. A cause for which nothing fails any more has none.
func nameCause(v *visit, s *selection) error {
	if s.Fingerprint == "" {
		return nil
	}
	if several := strings.Count(s.Fingerprint, ",") + 1; several > 1 {
		s.cause = words.Group(int64(several)) + " causes with the same text"
		return nil
	}
	g, err := v.view().Failures().Show(v.Context(), s.Fingerprint)
	if s.cause = g.Cause; errors.Is(err, failures.ErrUnknown) {
		return nil
	}
	return err
}

// hasBox returns an error if the console does not show this box.
func hasBox(c *Console, box ops.Box) error {
	if box == ops.BoxOutbox && c.cfg.Outbox != nil || box == ops.BoxInbox && c.cfg.Inbox != nil {
		return nil
	}
	return fmt.Errorf("%s: %q is neither outbox nor inbox, or this page does not show it", fieldBox, box)
}

// Values returns the selection as the query of an address.
func (s *selection) Values() url.Values {
	q := url.Values{fieldBox: {string(s.Box)}}
	for field, value := range s.fields() {
		if value != "" {
			q.Set(field, value)
		}
	}
	return q
}

func (s *selection) fields() map[string]string {
	return map[string]string{
		fieldError: s.Error, fieldType: s.Type, fieldTopic: s.Topic, fieldConsumer: s.Consumer, fieldTenant: s.Tenant, fieldID: s.ID,
		fieldCause: s.Fingerprint, fieldFrom: s.From, fieldBefore: s.Before,
	}
}

// IsOutbox reports whether the selection is about events of the outbox.
func (s *selection) IsOutbox() bool { return s.Box == ops.BoxOutbox }

// chip is one condition of a selection, and the address of the page without this condition.
type chip struct{ Name, Value, Without string }

// Chips returns the conditions, in the order of the form.
func (s *selection) Chips() (chips []chip) {
	values := s.fields()
	for _, f := range []struct{ field, name string }{
		{fieldError, "error contains"}, {fieldType, "type"}, {fieldTopic, "topic"}, {fieldConsumer, "consumer"}, {fieldTenant, "tenant"},
		{fieldID, "id"}, {fieldCause, "cause"}, {fieldFrom, "died from"}, {fieldBefore, "died before"},
	} {
		if values[f.field] == "" {
			continue
		}
		rest := s.Values()
		rest.Del(f.field)
		value := values[f.field]
		if f.field == fieldCause {
			value = cmp.Or(s.cause, value)
		}
		chips = append(chips, chip{f.name, value, "dead?" + rest.Encode()})
	}
	return chips
}

// placeOf returns the position behind a letter in its list, as a query. The lists page by this position and not by an offset: an offset skips rows when
// letters before it are replayed between two pages. The fields are those by which the box sorts, see [ops.Letter].
func placeOf(l *letter) url.Values {
	q := url.Values{"at": {strconv.FormatInt(l.DiedAt.UnixMicro(), 10)}}
	if l.Ref.Box == ops.BoxOutbox {
		q.Set("seq", strconv.FormatInt(l.Envelope.Sequence, 10))
		return q
	}
	q.Set("key", l.Ref.ID)
	q.Set("kc", l.Ref.Consumer)
	q.Set("kt", l.Ref.Tenant)
	q.Set("ks", l.Ref.Source)
	return q
}

// errDamaged is the error for an address that no page has produced.
var errDamaged = errors.New("the address of this page is damaged: begin with the first page")

// afterOf reads the letter after which a page begins; nil: the page is the first one. Only the fields of placeOf are set, which are all that a list compares.
func afterOf(q url.Values) (*ops.Letter, error) {
	if q.Get("at") == "" {
		return nil, nil
	}
	micro, err := strconv.ParseInt(q.Get("at"), 10, 64)
	if err != nil {
		return nil, errDamaged
	}
	l := &ops.Letter{DiedAt: time.UnixMicro(micro), Ref: ops.LetterRef{
		ID: q.Get("key"), Consumer: q.Get("kc"), Tenant: q.Get("kt"), Source: q.Get("ks"),
	}}
	if l.Ref.ID == "" {
		l.Envelope.Sequence, err = strconv.ParseInt(q.Get("seq"), 10, 64)
	} else {
		err = uuid.Validate(l.Ref.ID)
	}
	if err != nil {
		return nil, errDamaged
	}
	return l, nil
}
