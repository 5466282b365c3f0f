package ops

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/operator"
)

// Box is where dead letters lie.
type Box string

// The boxes.
const (
	// BoxOutbox has events that could not be published.
	BoxOutbox Box = "outbox"
	// BoxInbox has messages that consumers gave up.
	BoxInbox Box = "inbox"
)

// Selection selects dead letters by the texts that an operator typed. Command line and console share it. For a new property see operator.DeadFilter.
type Selection struct {
	// Box is the box of the letters. "": both.
	Box Box
	// Consumer, Tenant, Topic, Type, ID and Error are those of an operator.DeadFilter.
	Consumer, Tenant, Topic, Type, ID, Error string
	// From and Before bound the time of death, in [TimeForms].
	From, Before string
}

// Field is a field of a [Selection], for errors about it.
type Field string

// Fields whose text may not be understood.
const (
	FieldID     Field = "id"
	FieldFrom   Field = "from"
	FieldBefore Field = "before"
)

// IsEmpty reports whether the selection is of all letters of its boxes.
func (s *Selection) IsEmpty() bool { return *s == Selection{Box: s.Box} }

// Boxes are the boxes whose letters can be meant. Only the inbox has letters with a consumer.
func (s *Selection) Boxes() []Box {
	switch {
	case s.Box != "":
		return []Box{s.Box}
	case s.Consumer != "":
		return []Box{BoxInbox}
	default:
		return []Box{BoxOutbox, BoxInbox}
	}
}

// Filter returns the selection as a filter of both boxes. name says how a field is called where it was typed.
func (s *Selection) Filter(now time.Time, name func(Field) string) (operator.DeadFilter, error) {
	f := operator.DeadFilter{Consumer: s.Consumer, TenantID: s.Tenant, Topic: s.Topic, Type: s.Type, ID: s.ID, Error: s.Error}
	var errs []error
	for _, t := range []struct {
		field Field
		text  string
		to    *time.Time
	}{{FieldFrom, s.From, &f.DiedFrom}, {FieldBefore, s.Before, &f.DiedBefore}} {
		at, err := TimeAgo(t.text, now)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %w", name(t.field), err))
		}
		*t.to = at
	}
	if s.ID != "" && uuid.Validate(s.ID) != nil {
		errs = append(errs, fmt.Errorf("%s %q is no id: ids are UUIDs, as the lists show them", name(FieldID), s.ID))
	}
	if len(errs) == 0 {
		errs = append(errs, f.Validate())
	}
	return f, errors.Join(errs...)
}

// Parked returns the selection as a filter of messages that failed and are tried again.
func (s *Selection) Parked() parked.Filter {
	return parked.Filter{Consumer: s.Consumer, TenantID: s.Tenant, Topic: s.Topic, Type: s.Type, Error: s.Error}
}
