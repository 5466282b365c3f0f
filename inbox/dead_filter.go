package inbox

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
// Consumer, tenant, topic, type, key and time have indexes. Error has none: it is compared with the texts of what the other
// fields select, so give one of them as well when there are millions.
type DeadFilter struct {
	Consumer, TenantID, Topic, Type string
	// MessageKey is that of [MessageRef]: the id of an event of ours. Several consumers may have given it up.
	MessageKey string
	// Error is a part of the error text, as it is written there.
	Error string
	// DiedFrom and DiedBefore bound the time of death; the first counts as within, the second does not.
	DiedFrom, DiedBefore time.Time
}

// Validate names every field that cannot be used.
func (f DeadFilter) Validate() error {
	errs := []error{
		event.ValidateIdentifier("inbox: DeadFilter.Consumer", f.Consumer),
		event.ValidateIdentifier("inbox: DeadFilter.TenantID", f.TenantID),
		event.ValidateIdentifier("inbox: DeadFilter.Topic", f.Topic),
		event.ValidateIdentifier("inbox: DeadFilter.Type", f.Type),
	}
	if f.MessageKey != "" && uuid.Validate(f.MessageKey) != nil {
		errs = append(errs, fmt.Errorf("inbox: DeadFilter.MessageKey %q is not a UUID: %w", f.MessageKey, event.ErrInvalid))
	}
	if !f.DiedFrom.IsZero() && !f.DiedBefore.IsZero() && !f.DiedFrom.Before(f.DiedBefore) {
		errs = append(errs, fmt.Errorf("inbox: DeadFilter.DiedFrom %s is not before DiedBefore %s", f.DiedFrom, f.DiedBefore))
	}
	return errors.Join(errs...)
}

// where is the filter as conditions on inbox_dead d.
func (f DeadFilter) where() *pgsql.Where {
	w := &pgsql.Where{}
	for _, c := range []struct{ column, value string }{
		{"d.consumer", f.Consumer}, {"d.tenant_id", f.TenantID}, {"d.topic", f.Topic}, {"d.event_type", f.Type},
	} {
		if c.value != "" {
			w.Add(c.column+" = %s::text", c.value)
		}
	}
	if f.MessageKey != "" {
		w.Add("d.message_key = %s::uuid", f.MessageKey)
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
