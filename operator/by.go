package operator

import (
	"errors"
	"strings"

	"github.com/oncebox/oncebox/event"
)

// By is who acts and why. The audit stores both.
type By struct {
	// Actor is a login or address of a person or program, as the organisation writes it. Required.
	Actor string
	// Reason explains the action to readers of the audit, in at most 2 KiB. Required for actions that
	// delete, give up or pause something.
	Reason string
}

// Validate returns an error if Actor or Reason is missing or wrong for the action. A wrong Actor is an
// [event.ErrInvalid].
func (by By) Validate(a Action) error {
	var errs []error
	if strings.TrimSpace(by.Actor) == "" {
		errs = append(errs, errors.New(`By.Actor is empty: say who does it, as in operator.By{Actor: "ann", Reason: "the cause is mended"}`))
	}
	if why := a.needsReason(); why != "" && strings.TrimSpace(by.Reason) == "" {
		errs = append(errs, errors.New("By.Reason is empty: "+why))
	}
	return errors.Join(append(errs, event.ValidateIdentifier("By.Actor", by.Actor))...)
}
