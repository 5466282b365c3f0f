package ops

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/operator"
)

// Box is one of the two places that hold dead letters.
type Box string

// The boxes.
const (
	// BoxOutbox holds events that could not be published.
	BoxOutbox Box = "outbox"
	// BoxInbox holds messages that consumers have given up.
	BoxInbox Box = "inbox"
)

// Selection selects dead letters by texts that an operator has typed. Command line and console share it.
// operator.DeadFilter says what to do for a new property.
type Selection struct {
	// Box is the box of the letters; "" means both.
	Box Box
	// Consumer, Tenant, Topic, Type, ID and Error are as in operator.DeadFilter.
	Consumer, Tenant, Topic, Type, ID, Error string
	// Fingerprint is that of a group of failures. For messages that are tried again it may be several, with commas between them.
	Fingerprint string
	// From and Before limit when the letters died, in one of [TimeForms].
	From, Before string
}

// Field names a field of a [Selection] in errors.
type Field string

// Fields whose text may be invalid.
const (
	FieldID     Field = "id"
	FieldFrom   Field = "from"
	FieldBefore Field = "before"
)

// IsEmpty reports whether the selection has no condition but its box.
func (s *Selection) IsEmpty() bool { return *s == Selection{Box: s.Box} }

// Boxes returns the boxes that can have selected letters. With a consumer only the inbox can.
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

// Filter returns the selection as a filter for both boxes. name returns what a field is called where the
// operator has typed it, for errors.
func (s *Selection) Filter(now time.Time, name func(Field) string) (operator.DeadFilter, error) {
	f := operator.DeadFilter{Consumer: s.Consumer, TenantID: s.Tenant, Topic: s.Topic, Type: s.Type, ID: s.ID, Fingerprint: s.Fingerprint, Error: s.Error}
	var errs []error
	for _, t := range []struct {
		field Field
		text  string
		to    *time.Time
		// Both times are checked before the error returns, so that the operator sees all mistakes at once.
	}{{FieldFrom, s.From, &f.DiedFrom}, {FieldBefore, s.Before, &f.DiedBefore}} {
		at, err := TimeAgo(t.text, now)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %w", name(t.field), err))
		}
		*t.to = at
	}
	if s.ID != "" && uuid.Validate(s.ID) != nil {
		errs = append(errs, fmt.Errorf("%s %q is not an id: ids are UUIDs, as the lists show them", name(FieldID), s.ID))
	}
	// The filter is checked only if its parts are valid. Otherwise one mistake would be reported twice.
	if len(errs) == 0 {
		errs = append(errs, f.Validate())
	}
	return f, errors.Join(errs...)
}

// Parked returns the selection as a filter of messages that failed and are tried again.
func (s *Selection) Parked() parked.Filter {
	f := parked.Filter{Consumer: s.Consumer, TenantID: s.Tenant, Topic: s.Topic, Type: s.Type, Error: s.Error}
	if s.Fingerprint != "" {
		f.Fingerprints = strings.Split(s.Fingerprint, ",")
	}
	return f
}
