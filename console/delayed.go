package console

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/outbox/delayed"
	"github.com/oncebox/oncebox/outbox/state"
)

// Fields of the filter of delayed events.
const (
	fieldAggregateType = "aggregate_type"
	fieldAggregateID   = "aggregate_id"
)

// delayedView is the data of a page of delayed events.
type delayedView struct {
	delayed.Filter

	Rows   []delayedRow
	Form   frame.Filter
	Pager  frame.Pager
	Notice string
}

// delayedRow is one delayed event, with the addresses of its pages.
type delayedRow struct {
	state.Row

	Event, Move, Cancel string
}

// IsOverdue reports whether the time of the event has come, so that it can no longer be changed.
func (r *delayedRow) IsOverdue(now time.Time) bool { return !r.Delivery.NotBefore.After(now) }

// showDelayed lists delayed events, the next one to be published first.
func showDelayed(v *visit) error {
	q := v.URL.Query()
	view := &delayedView{Filter: delayed.Filter{
		TenantID: q.Get(fieldTenant), AggregateType: q.Get(fieldAggregateType), AggregateID: q.Get(fieldAggregateID), Overdue: true,
	}, Notice: decided(q)}
	if err := view.Validate(); err != nil {
		return invalid(err)
	}
	after, err := delayedAfter(q.Get("after"))
	if err != nil {
		return invalid(err)
	}
	rows, err := v.cfg.Outbox.Delayed().List(v.Context(), v.db, view.Filter, after, perPage+1)
	if err != nil {
		return err
	}
	fields := frame.Set(map[string]string{fieldTenant: view.TenantID, fieldAggregateType: view.AggregateType, fieldAggregateID: view.AggregateID})
	view.Form = v.filter(fields, nil)
	var next url.Values
	if len(rows) > perPage {
		rows = rows[:perPage]
		last := &rows[perPage-1]
		next = url.Values{"after": {strconv.FormatInt(last.Delivery.NotBefore.UnixMicro(), 10) + "." + strconv.FormatInt(last.Sequence, 10)}}
	}
	view.Pager = frame.NewPager(pageDelayed, q, fields, len(rows), next)
	if counts := v.numbers(); view.Pager.Of == "" && len(fields) == 0 && counts.err == nil {
		view.Pager.Of = menuCount(counts.Delayed)
	}
	for n := range rows {
		r := refOutbox(rows[n].ID, rows[n].TenantID)
		view.Rows = append(view.Rows, delayedRow{rows[n], frame.Event(r.ID, rows[n].Source), r.decide(decideMove), r.decide(decideCancel)})
	}
	return v.show(pageDelayed, "Delayed events", view)
}

// delayedAfter reads the event after which a page begins; nil: the page is the first one.
func delayedAfter(place string) (*state.Row, error) {
	at, seq, found := strings.Cut(place, ".")
	if !found {
		return nil, nil
	}
	micro, err := strconv.ParseInt(at, 10, 64)
	number, err2 := strconv.ParseInt(seq, 10, 64)
	if err != nil || err2 != nil {
		return nil, errDamaged
	}
	after := &state.Row{}
	after.Delivery.NotBefore, after.Sequence = time.UnixMicro(micro), number
	return after, nil
}
