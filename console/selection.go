package console

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/outbox"
)

// Where a dead letter lies.
const (
	boxOutbox = "outbox" // an event that could not be published
	boxInbox  = "inbox"  // a message that a consumer gave up
)

// selection is a filter of dead letters as it stands in the address of a page.
type selection struct {
	Box                                     string
	Consumer, Tenant, Topic, Type, ID, Text string
	From, Before                            string

	diedFrom, diedBefore time.Time
}

// fields of the address, in the order of the form.
const (
	fieldBox      = "box"
	fieldText     = "error"
	fieldType     = "type"
	fieldTopic    = "topic"
	fieldConsumer = "consumer"
	fieldTenant   = "tenant"
	fieldID       = "id"
	fieldFrom     = "from"
	fieldBefore   = "before"
)

// selected reads a filter. Without a box it is that of the first part that the page has.
func (c *Console) selected(q url.Values, now time.Time) (selection, error) {
	get := func(field string) string { return strings.TrimSpace(q.Get(field)) }
	s := selection{
		Box: get(fieldBox), Consumer: get(fieldConsumer), Tenant: q.Get(fieldTenant), Topic: get(fieldTopic), Type: get(fieldType), ID: get(fieldID),
		Text: q.Get(fieldText), From: get(fieldFrom), Before: get(fieldBefore),
	}
	if s.Box == "" {
		s.Box = boxOutbox
		if c.cfg.Outbox == nil {
			s.Box = boxInbox
		}
	}
	var errs []error
	if err := c.hasBox(s.Box); err != nil {
		errs = append(errs, err)
	}
	if s.Box == boxOutbox {
		s.Consumer = ""
	}
	var err error
	if s.diedFrom, err = ops.TimeAgo(s.From, now); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", fieldFrom, err))
	}
	if s.diedBefore, err = ops.TimeAgo(s.Before, now); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", fieldBefore, err))
	}
	if s.ID != "" && uuid.Validate(s.ID) != nil {
		errs = append(errs, fmt.Errorf("%s: %q is no id: ids are UUIDs, as the lists show them", fieldID, s.ID))
	}
	if len(errs) == 0 {
		if err := errors.Join(s.outbox().Validate(), s.inbox().Validate()); err != nil {
			errs = append(errs, err)
		}
	}
	return s, errors.Join(errs...)
}

// hasBox errs unless the page shows this box.
func (c *Console) hasBox(box string) error {
	if box == boxOutbox && c.cfg.Outbox != nil || box == boxInbox && c.cfg.Inbox != nil {
		return nil
	}
	return fmt.Errorf("%s: %q is neither outbox nor inbox, or this page does not show it", fieldBox, box)
}

func (s *selection) outbox() outbox.DeadFilter {
	return outbox.DeadFilter{
		TenantID: s.Tenant, Topic: s.Topic, Type: s.Type, ID: s.ID, Error: s.Text, DiedFrom: s.diedFrom, DiedBefore: s.diedBefore,
	}
}

func (s *selection) inbox() inbox.DeadFilter {
	return inbox.DeadFilter{
		Consumer: s.Consumer, TenantID: s.Tenant, Topic: s.Topic, Type: s.Type, MessageKey: s.ID, Error: s.Text,
		DiedFrom: s.diedFrom, DiedBefore: s.diedBefore,
	}
}

// parked is the selection for messages that failed and are tried again.
func (s *selection) parked() inbox.ParkedFilter {
	return inbox.ParkedFilter{Consumer: s.Consumer, TenantID: s.Tenant, Topic: s.Topic, Type: s.Type, Error: s.Text}
}

// Values is the selection as it stands in an address.
func (s *selection) Values() url.Values {
	q := url.Values{fieldBox: {s.Box}}
	for field, value := range s.fields() {
		if value != "" {
			q.Set(field, value)
		}
	}
	return q
}

func (s *selection) fields() map[string]string {
	return map[string]string{
		fieldText: s.Text, fieldType: s.Type, fieldTopic: s.Topic, fieldConsumer: s.Consumer, fieldTenant: s.Tenant, fieldID: s.ID,
		fieldFrom: s.From, fieldBefore: s.Before,
	}
}

// IsOutbox says that events of the outbox are meant.
func (s *selection) IsOutbox() bool { return s.Box == boxOutbox }

// chip is one condition of a selection, and the address without it.
type chip struct{ Name, Value, Without string }

// Chips are the conditions, in the order of the form.
func (s *selection) Chips() (chips []chip) {
	values := s.fields()
	for _, f := range []struct{ field, name string }{
		{fieldText, "error contains"}, {fieldType, "type"}, {fieldTopic, "topic"}, {fieldConsumer, "consumer"}, {fieldTenant, "tenant"},
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

// cursor is the place behind a dead letter in its list, as text.
type cursor struct {
	at  time.Time
	seq int64            // of the outbox
	key inbox.MessageRef // of the inbox
}

func (c cursor) values() url.Values {
	q := url.Values{"at": {strconv.FormatInt(c.at.UnixMicro(), 10)}}
	if c.key.MessageKey == "" {
		q.Set("seq", strconv.FormatInt(c.seq, 10))
		return q
	}
	q.Set("key", c.key.MessageKey)
	q.Set("kc", c.key.Consumer)
	q.Set("kt", c.key.TenantID)
	q.Set("ks", c.key.Source)
	return q
}

// cursorOf reads the place where a page begins; nil: at the start.
func cursorOf(q url.Values) (*cursor, error) {
	if q.Get("at") == "" {
		return nil, nil
	}
	micro, err := strconv.ParseInt(q.Get("at"), 10, 64)
	if err != nil {
		return nil, errors.New("the address of this page is damaged: begin with the first page")
	}
	c := &cursor{at: time.UnixMicro(micro), key: inbox.MessageRef{
		MessageKey: q.Get("key"), Consumer: q.Get("kc"), TenantID: q.Get("kt"), Source: q.Get("ks"),
	}}
	if c.key.MessageKey == "" {
		c.seq, err = strconv.ParseInt(q.Get("seq"), 10, 64)
	} else {
		err = uuid.Validate(c.key.MessageKey)
	}
	if err != nil {
		return nil, errors.New("the address of this page is damaged: begin with the first page")
	}
	return c, nil
}
