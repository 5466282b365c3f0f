package operator

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/event"
)

// DeadFilter selects the dead letters that match every field that is set. The zero filter selects all.
//
// A dead letter has no status: a replay or a discard removes it. DeadLetter.Holds says whether later events of its key wait for it.
//
// A new field is used in these places:
//
//   - Validate, here
//   - Where in internal/deadletter/filter.go. If the column differs between the boxes, as Consumer does, it is a field of deadletter.SQL, which
//     outbox/dead/box.go and inbox/dead/box.go set
//   - Selection in ops/selection.go, from the text of a flag or a form to a filter
//   - the flags in cmd/oncebox/internal/dead/dead.go, which all commands about dead letters share
//   - the form: its names and its summary in console/dead.go, its input in console/templates/dead.html
//
// Each of today's fields but Error has an index. Error is compared with the texts of all letters that the other fields select, so set one of
// them as well when there are millions.
type DeadFilter struct {
	// Consumer is the consumer that gave the message up. It selects no letter of the outbox.
	Consumer string
	// TenantID, Topic and Type are those of the event or message.
	TenantID, Topic, Type string
	// ID is the id of the event; in the inbox it is the message key. Several letters may have it: an event can be dead
	// at several consumers, and a producer may have given one id to several events.
	ID string
	// Fingerprint is that of the letter's error, see package operator/failures.
	Fingerprint string
	// Error is a part of the error's text, exactly as it is written there.
	Error string
	// DiedFrom and DiedBefore limit when the letter died: from the first, inclusive, to the second, exclusive.
	DiedFrom, DiedBefore time.Time
}

// Validate names every field that cannot be used.
func (f DeadFilter) Validate() error {
	errs := []error{
		event.ValidateIdentifier("DeadFilter.Consumer", f.Consumer),
		event.ValidateIdentifier("DeadFilter.TenantID", f.TenantID),
		event.ValidateIdentifier("DeadFilter.Topic", f.Topic),
		event.ValidateIdentifier("DeadFilter.Type", f.Type),
	}
	if f.ID != "" && uuid.Validate(f.ID) != nil {
		errs = append(errs, fmt.Errorf("DeadFilter.ID %q is not a UUID: %w", f.ID, event.ErrInvalid))
	}
	if !f.DiedFrom.IsZero() && !f.DiedBefore.IsZero() && !f.DiedFrom.Before(f.DiedBefore) {
		errs = append(errs, fmt.Errorf("DeadFilter.DiedFrom %s is not before DiedBefore %s", f.DiedFrom, f.DiedBefore))
	}
	return errors.Join(errs...)
}
