package console

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

// selection is a filter of dead letters as it stands in the address of a page.
type selection struct {
	ops.Selection

	filter operator.DeadFilter
}

// fields of the address, in the order of the form.
const (
	fieldBox      = "box"
	fieldError    = "error"
	fieldType     = "type"
	fieldTopic    = "topic"
	fieldConsumer = "consumer"
	fieldTenant   = "tenant"
	fieldID       = "id"
	fieldFrom     = "from"
	fieldBefore   = "before"
)

// boxOf selects all letters of a box.
func boxOf(box ops.Box) selection { return selection{Selection: ops.Selection{Box: box}} }

// selected reads a filter. Without a box it is that of the first part that the page has.
func (c *Console) selected(q url.Values, now time.Time) (s selection, err error) {
	get := func(field string) string { return strings.TrimSpace(q.Get(field)) }
	s.Selection = ops.Selection{
		Box: ops.Box(get(fieldBox)), Consumer: get(fieldConsumer), Tenant: q.Get(fieldTenant), Topic: get(fieldTopic), Type: get(fieldType),
		ID: get(fieldID), Error: q.Get(fieldError), From: get(fieldFrom), Before: get(fieldBefore),
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
	return s, errors.Join(c.hasBox(s.Box), err)
}

// hasBox errs unless the page shows this box.
func (c *Console) hasBox(box ops.Box) error {
	if box == ops.BoxOutbox && c.cfg.Outbox != nil || box == ops.BoxInbox && c.cfg.Inbox != nil {
		return nil
	}
	return fmt.Errorf("%s: %q is neither outbox nor inbox, or this page does not show it", fieldBox, box)
}

// Values is the selection as it stands in an address.
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
		fieldFrom: s.From, fieldBefore: s.Before,
	}
}

// IsOutbox says that events of the outbox are meant.
func (s *selection) IsOutbox() bool { return s.Box == ops.BoxOutbox }

// chip is one condition of a selection, and the address without it.
type chip struct{ Name, Value, Without string }

// Chips are the conditions, in the order of the form.
func (s *selection) Chips() (chips []chip) {
	values := s.fields()
	for _, f := range []struct{ field, name string }{
		{fieldError, "error contains"}, {fieldType, "type"}, {fieldTopic, "topic"}, {fieldConsumer, "consumer"}, {fieldTenant, "tenant"},
		{fieldID, "id"}, {fieldFrom, "died from"}, {fieldBefore, "died before"},
	} {
		if values[f.field] == "" {
			continue
		}
		rest := s.Values()
		rest.Del(f.field)
		chips = append(chips, chip{f.name, values[f.field], "dead?" + rest.Encode()})
	}
	return chips
}

// placeOf is the place behind a letter in its list, as it stands in an address.
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

// errDamaged is that of an address which no page has made.
var errDamaged = errors.New("the address of this page is damaged: begin with the first page")

// afterOf reads the letter behind which a page begins; nil: at the start.
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
