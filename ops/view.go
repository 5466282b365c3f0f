package ops

import (
	"cmp"
	"context"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/operator"
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
