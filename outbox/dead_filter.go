package outbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// DeadFilter selects dead letters: those that agree with every field that is set. The zero filter selects all.
//
// Tenant, topic, type, id and time have indexes. Error has none: it is compared with the texts of what the other fields
// select, so give one of them as well when there are millions.
type DeadFilter struct {
	TenantID, Topic, Type string
	// ID is that of the event. Several dead letters have it if the producer gave it to several events.
	ID string
	// Error is a part of the error text, as it is written there.
	Error string
	// DiedFrom and DiedBefore bound the time of death; the first counts as within, the second does not.
	DiedFrom, DiedBefore time.Time
}

// Validate names every field that cannot be used.
func (f DeadFilter) Validate() error {
	errs := []error{
		event.ValidateIdentifier("outbox: DeadFilter.TenantID", f.TenantID),
		event.ValidateIdentifier("outbox: DeadFilter.Topic", f.Topic),
		event.ValidateIdentifier("outbox: DeadFilter.Type", f.Type),
	}
	if f.ID != "" && uuid.Validate(f.ID) != nil {
		errs = append(errs, fmt.Errorf("outbox: DeadFilter.ID %q is not a UUID: %w", f.ID, event.ErrInvalid))
	}
	if !f.DiedFrom.IsZero() && !f.DiedBefore.IsZero() && !f.DiedFrom.Before(f.DiedBefore) {
		errs = append(errs, fmt.Errorf("outbox: DeadFilter.DiedFrom %s is not before DiedBefore %s", f.DiedFrom, f.DiedBefore))
	}
	return errors.Join(errs...)
}

// where is the filter as conditions on outbox_dead d.
func (f DeadFilter) where() *pgsql.Where {
	w := &pgsql.Where{}
	for _, c := range []struct{ column, value string }{
		{"d.tenant_id", f.TenantID}, {"d.topic", f.Topic}, {"d.event_type", f.Type},
	} {
		if c.value != "" {
			w.Add(c.column+" = %s::text", c.value)
		}
	}
	if f.ID != "" {
		w.Add("d.id = %s::uuid", f.ID)
	}
	if f.Error != "" {
		// The stored texts were cleaned, so an error that is pasted is found only if that is cleaned as well.
		w.Add("strpos(d.error_message, %s::text) > 0", cleanText(f.Error))
	}
	if !f.DiedFrom.IsZero() {
		w.Add("d.died_at >= %s::timestamptz", f.DiedFrom)
	}
	if !f.DiedBefore.IsZero() {
		w.Add("d.died_at < %s::timestamptz", f.DiedBefore)
	}
	return w
}
