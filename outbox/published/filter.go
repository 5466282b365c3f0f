package published

import (
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Filter selects published events. Each field that is set narrows the selection; the zero filter selects all events that
// are kept. Partitions of days after SentBefore are not read.
type Filter struct {
	TenantID, Topic, Type      string
	AggregateType, AggregateID string
	// SentFrom and SentBefore bound the time of publication: SentFrom <= time < SentBefore.
	SentFrom, SentBefore time.Time
}

// Validate names every field that cannot be used.
func (f Filter) Validate() error {
	var errs []error
	for _, c := range f.texts() {
		errs = append(errs, event.ValidateIdentifier("outbox: published.Filter."+c.field, c.value))
	}
	if !f.SentFrom.IsZero() && !f.SentBefore.IsZero() && !f.SentFrom.Before(f.SentBefore) {
		errs = append(errs, fmt.Errorf("outbox: published.Filter.SentFrom %s is not before SentBefore %s", f.SentFrom, f.SentBefore))
	}
	return errors.Join(errs...)
}

type filterText struct{ field, column, value string }

// texts lists the conditions on texts, for the check and for the statement, so that none is in only one of them.
func (f Filter) texts() []filterText {
	return []filterText{
		{"TenantID", "tenant_id", f.TenantID}, {"Topic", "topic", f.Topic}, {"Type", "event_type", f.Type},
		{"AggregateType", "aggregate_type", f.AggregateType}, {"AggregateID", "aggregate_id", f.AggregateID},
	}
}

// where is the filter as conditions on outbox_published s.
func (f Filter) where(after int64) *pgsql.Where {
	// Columns come from the list above and values are arguments, so no text of a caller becomes a part of
	// the statement.
	w := &pgsql.Where{}
	for _, c := range f.texts() {
		if c.value != "" {
			w.Add("s."+c.column+" = %s::text", c.value)
		}
	}
	if !f.SentFrom.IsZero() {
		w.Add("s.sent_at >= %s::timestamptz", f.SentFrom)
	}
	if !f.SentBefore.IsZero() {
		w.Add("s.within < %s::timestamptz", f.SentBefore) // for the planner: nothing is sent before it is recorded
		w.Add("s.sent_at < %s::timestamptz", f.SentBefore)
	}
	if after > 0 {
		w.Add("s.seq > %s::bigint", after)
	}
	return w
}
