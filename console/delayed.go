package console

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/oncebox/oncebox/outbox/delayed"
	"github.com/oncebox/oncebox/outbox/state"
)

// delayedView is the data of a page of delayed events.
type delayedView struct {
	Tenant, AggregateType, AggregateID string
	Rows                               []delayedRow
	First, Next                        string
	Notice                             string
}

// delayedRow is one delayed event, with the addresses of its pages.
type delayedRow struct {
	state.Row

	Event, Move, Cancel string
}

// showDelayed lists delayed events, the next one to be published first.
func showDelayed(v *visit) error {
	q := v.URL.Query()
	view := &delayedView{Tenant: q.Get(fieldTenant), AggregateType: q.Get("aggregate_type"), AggregateID: q.Get("aggregate_id"), Notice: decided(q)}
	filter := delayed.Filter{TenantID: view.Tenant, AggregateType: view.AggregateType, AggregateID: view.AggregateID}
	if err := filter.Validate(); err != nil {
		return invalid(err)
	}
	var after *state.Row
	if at, seq, found := strings.Cut(q.Get("after"), "."); found {
		micro, err := strconv.ParseInt(at, 10, 64)
		number, err2 := strconv.ParseInt(seq, 10, 64)
		if err != nil || err2 != nil {
			return invalid(errDamaged)
		}
		after = &state.Row{}
		after.Delivery.NotBefore, after.Sequence = time.UnixMicro(micro), number
	}
	rows, err := v.cfg.Outbox.Delayed().List(v.Context(), v.db, filter, after, perPage+1)
	if err != nil {
		return err
	}
	address := url.Values{}
	for field, value := range map[string]string{fieldTenant: view.Tenant, "aggregate_type": view.AggregateType, "aggregate_id": view.AggregateID} {
		if value != "" {
			address.Set(field, value)
		}
	}
	if after != nil {
		view.First = "delayed?" + address.Encode()
	}
	if len(rows) > perPage {
		rows = rows[:perPage]
		last := &rows[perPage-1]
		address.Set("after", strconv.FormatInt(last.Delivery.NotBefore.UnixMicro(), 10)+"."+strconv.FormatInt(last.Sequence, 10))
		view.Next = "delayed?" + address.Encode()
	}
	for n := range rows {
		r := refOutbox(rows[n].ID, rows[n].TenantID)
		view.Rows = append(view.Rows, delayedRow{rows[n], eventPage(r.ID, rows[n].Source), r.decide(decideMove), r.decide(decideCancel)})
	}
	return v.show(pageDelayed, "Delayed events", view)
}
