package ops

import (
	"context"
	"slices"

	outboxstate "github.com/oncebox/oncebox/outbox/state"
	"github.com/oncebox/oncebox/outbox/tenants"
)

// Pauses are the tenants that an operator has paused, and not for so long that [View.Stuck] lists them. Their events wait on purpose. The oldest pause
// is first. A filter by topic selects all of them, for a pause is of every topic; one by consumer selects none.
func (v *View) Pauses(ctx context.Context, filter Filter) ([]tenants.Pause, error) {
	if filter.Consumer != "" || v.outbox == nil {
		return nil, nil
	}
	paused, err := v.pausesOf(ctx, filter.Tenant)
	return slices.DeleteFunc(paused, func(p tenants.Pause) bool { return p.Age > LongPause }), err
}

func (v *View) longPauses(ctx context.Context, filter Filter, limit int) (list []Stuck, err error) {
	if filter.Topic != "" || filter.Consumer != "" || v.outbox == nil {
		return nil, nil
	}
	paused, err := v.pausesOf(ctx, filter.Tenant)
	for n := range paused {
		if p := &paused[n]; p.Age > LongPause {
			list = append(list, Stuck{Kind: TenantPaused, Since: p.Since, Tenant: p.Tenant, Error: "paused by " + p.Actor + ": " + p.Reason})
		}
	}
	return list[:min(len(list), limit)], err
}

// pausesOf are the pauses of a tenant, or of all, the oldest first.
func (v *View) pausesOf(ctx context.Context, tenant string) ([]tenants.Pause, error) {
	paused, err := v.outbox.Tenants().Paused(ctx)
	paused = slices.DeleteFunc(paused, func(p tenants.Pause) bool { return tenant != "" && p.Tenant != tenant })
	slices.SortFunc(paused, func(a, b tenants.Pause) int { return a.Since.Compare(b.Since) })
	return paused, err
}

// paused adds to events that wait in the outbox that their tenant is paused.
func (v *View) paused(ctx context.Context, found *lives) error {
	if !slices.ContainsFunc(found.list, (*Life).waits) {
		return nil
	}
	paused, err := v.pausesOf(ctx, "")
	for n := range paused {
		p := &paused[n]
		for _, l := range found.list {
			if l.waits() && l.Tenant == p.Tenant {
				l.add(Moment{What: Paused, Actor: p.Actor, Reason: p.Reason})
			}
		}
	}
	return err
}

// waits reports whether the outbox has yet to publish the event.
func (l *Life) waits() bool {
	return slices.ContainsFunc(l.Outbox, func(e outboxstate.Located) bool {
		return e.Status != outboxstate.StatusSent && e.Status != outboxstate.StatusDead
	})
}
