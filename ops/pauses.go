package ops

import (
	"context"
	"slices"

	"github.com/oncebox/oncebox/inbox/consumers"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
	"github.com/oncebox/oncebox/outbox/tenants"
)

// Pauses returns the tenants that an operator has paused, the oldest pause first. Pauses that are so old that
// [View.Stuck] lists them are left out. A filter by topic selects all, because a pause covers all topics of a tenant; a
// filter by consumer selects none.
func (v *View) Pauses(ctx context.Context, filter Filter) ([]tenants.Pause, error) {
	if filter.Consumer != "" || v.outbox == nil {
		return nil, nil
	}
	paused, err := v.pausesOf(ctx, filter.Tenant)
	return slices.DeleteFunc(paused, func(p tenants.Pause) bool { return p.Age > LongPause }), err
}

// ConsumerPauses returns the consumers that an operator has paused, by their names. Pauses that are so old that [View.Stuck] lists them are left
// out. A filter by topic or tenant selects all, because a pause covers all messages of a consumer.
func (v *View) ConsumerPauses(ctx context.Context, filter Filter) ([]consumers.Pause, error) {
	if v.inbox == nil {
		return nil, nil
	}
	list, err := v.inbox.Consumers().Paused(ctx)
	return slices.DeleteFunc(list, func(p consumers.Pause) bool {
		return filter.Consumer != "" && filter.Consumer != p.Consumer || p.Until.IsZero() && p.Age > LongPause
	}), err
}

// longPauses finds pauses that were probably forgotten. They become stuck things, because nobody else reports them.
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

// pausesOf returns the pauses of one tenant, or of all, the oldest first.
func (v *View) pausesOf(ctx context.Context, tenant string) ([]tenants.Pause, error) {
	paused, err := v.outbox.Tenants().Paused(ctx)
	paused = slices.DeleteFunc(paused, func(p tenants.Pause) bool { return tenant != "" && p.Tenant != tenant })
	slices.SortFunc(paused, func(a, b tenants.Pause) int { return a.Since.Compare(b.Since) })
	return paused, err
}

// paused adds the pause of the tenant to events that wait in the outbox.
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

// waits reports whether the event still waits in the outbox to be published.
func (l *Life) waits() bool {
	return slices.ContainsFunc(l.Outbox, func(e outboxstate.Located) bool {
		return e.Status != outboxstate.StatusSent && e.Status != outboxstate.StatusDead
	})
}
