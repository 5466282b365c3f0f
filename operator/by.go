package operator

import (
	"errors"
	"strings"

	"github.com/oncebox/oncebox/event"
)

// By says who acts, and why. Both are written to the audit.
type By struct {
	// Actor is a person or a program, in the words of the organisation: a login, an address. Required.
	Actor string
	// Reason says why, for readers of the audit, at most 2 KiB. Required where something is deleted, given up or paused.
	Reason string
}

// Validate names what is missing for an action. A wrong Actor is an [event.ErrInvalid].
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
