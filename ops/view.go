package ops

import (
	"cmp"
	"context"
	"slices"

	"github.com/uptrace/bun"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
	"github.com/oncebox/oncebox/outbox"
)

// View reads the tables of one service. It is safe for concurrent use.
type View struct {
	db     *bun.DB
	outbox *outbox.Store
	inbox  *inbox.Inbox
	keys   *idempotency.Store
	read   func(context.Context) ([]state.Consumer, error) // reads the consumers; nil: inbox.State().Consumers does
}

// New returns a view. db is the database of the idempotency keys. Stores that are nil are left out, because
// a service need not use all parts.
func New(db *bun.DB, events *outbox.Store, messages *inbox.Inbox, keys *idempotency.Store) *View {
	return &View{db: db, outbox: events, inbox: messages, keys: keys}
}

// Audit lists the actions of operators and retentions, the newest first, in all parts or in the part of the filter. A
// page has at most limit entries (0: 100). It begins after the entry before, the last of the previous page, of which
// only the ID counts (nil: with the newest).
func (v *View) Audit(ctx context.Context, filter operator.AuditFilter, before *operator.AuditEntry, limit int) ([]operator.AuditEntry, error) {
	filter.Part = cmp.Or(filter.Part, operator.EveryPart)
	// All parts share one table, so any store can read it. The filter says which entries.
	switch {
	case v.outbox != nil:
		return v.outbox.Audit(ctx, filter, before, limit)
	case v.inbox != nil:
		return v.inbox.Audit(ctx, filter, before, limit)
	default:
		return v.keys.Audit(ctx, v.db, filter, before, limit)
	}
}

// Dead returns the dead letters of both boxes.
func (v *View) Dead() DeadLetters { return DeadLetters{v.outbox, v.inbox} }

// Failures returns the groups of failures of both boxes.
func (v *View) Failures() (boxes failures.Boxes) {
	if v.outbox != nil {
		boxes = append(boxes, v.outbox.Failures())
	}
	if v.inbox != nil {
		boxes = append(boxes, v.inbox.Failures())
	}
	return boxes
}

// Causes returns everything of [View.Stuck] grouped by cause, ordered by the oldest thing of each group, and the groups that are left out because an
// operator has archived them. Failures are counted as package operator/failures says. With a filter by tenant or topic, at most [Looked] of each kind
// are.
func (v *View) Causes(ctx context.Context, filter Filter) (list []Cause, archived []failures.Group, err error) {
	read := v.reads()
	if filter.Tenant == "" && filter.Topic == "" {
		read = []reading{v.loadedParts, v.unknownSteps, v.longPauses}
	}
	var groups []failures.Group
	var all []Stuck
	var limits map[string]operator.Limit
	reads, ctx := errgroup.WithContext(ctx)
	reads.Go(func() (err error) {
		groups, err = v.Failures().List(ctx)
		return err
	})
	reads.Go(func() (err error) {
		if all, err = v.stuck(ctx, filter, Looked, read); err == nil {
			limits, err = v.limits(ctx)
		}
		return err
	})
	if err := reads.Wait(); err != nil {
		return nil, nil, err
	}
	known := map[string]*failures.Group{}
	for n := range groups {
		g := &groups[n]
		switch {
		case filter.Consumer != "" && filter.Consumer != g.Consumer:
		case g.IsArchived():
			archived = append(archived, *g)
		default:
			known[g.Fingerprint] = g
			if filter.Tenant == "" && filter.Topic == "" {
				list = append(list, causesOf(g)...)
			}
		}
	}
	list = append(list, group(slices.DeleteFunc(all, func(s Stuck) bool { return isArchived(archived, s.Fingerprint) }))...)
	for n := range list {
		list[n].Failures = known[list[n].Fingerprint]
		list[n].limit(limits)
	}
	slices.SortStableFunc(list, func(a, b Cause) int { return byAge(&a.Stuck, &b.Stuck) })
	return list, archived, nil
}
