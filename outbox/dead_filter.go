package outbox

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/oncebox/oncebox/event"
)

// DeadFilter selects dead letters: those that agree with every field that is set. The zero filter selects all.
//
// Tenant, topic, type and time have indexes. Error has none: it is compared with the texts of what the other fields
// select, so give one of them as well when there are millions.
type DeadFilter struct {
	TenantID, Topic, Type string
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
	if !f.DiedFrom.IsZero() && !f.DiedBefore.IsZero() && !f.DiedFrom.Before(f.DiedBefore) {
		errs = append(errs, fmt.Errorf("outbox: DeadFilter.DiedFrom %s is not before DiedBefore %s", f.DiedFrom, f.DiedBefore))
	}
	return errors.Join(errs...)
}

// where is the filter as conditions on outbox_dead d.
func (f DeadFilter) where() *where {
	w := &where{}
	for _, c := range []struct{ column, value string }{
		{"d.tenant_id", f.TenantID}, {"d.topic", f.Topic}, {"d.event_type", f.Type},
	} {
		if c.value != "" {
			w.add(c.column+" = %s::text", c.value)
		}
	}
	if f.Error != "" {
		// The stored texts were cleaned, so whoever pastes an error finds it only if that is cleaned as well.
		w.add("strpos(d.error_message, %s::text) > 0", cleanText(f.Error))
	}
	if !f.DiedFrom.IsZero() {
		w.add("d.died_at >= %s::timestamptz", f.DiedFrom)
	}
	if !f.DiedBefore.IsZero() {
		w.add("d.died_at < %s::timestamptz", f.DiedBefore)
	}
	return w
}

// where collects conditions and their arguments. Values are arguments always; only constants get into the text.
type where struct {
	conditions []string
	args       []any
}

// arg adds an argument and returns its placeholder.
func (w *where) arg(value any) string {
	w.args = append(w.args, value)
	return fmt.Sprintf("$%d", len(w.args))
}

// add adds a condition in which each %s is the placeholder of a value.
func (w *where) add(condition string, values ...any) {
	places := make([]any, len(values))
	for i, v := range values {
		places[i] = w.arg(v)
	}
	w.conditions = append(w.conditions, fmt.Sprintf(condition, places...))
}

// String is the conditions as SQL.
func (w *where) String() string {
	if len(w.conditions) == 0 {
		return "true"
	}
	return strings.Join(w.conditions, " AND ")
}
