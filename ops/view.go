package ops

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/outbox"
)

// View reads the tables of one service. It is safe for concurrent use.
type View struct {
	db     *bun.DB
	outbox *outbox.Store
	inbox  *inbox.Inbox
	keys   *idempotency.Store
	read   func(context.Context) ([]inbox.ConsumerState, error) // nil: the inbox's own
}

// New returns a view. db is the database of the keys. What is nil is left out: a service need not have all parts.
func New(db *bun.DB, events *outbox.Store, messages *inbox.Inbox, keys *idempotency.Store) *View {
	return &View{db: db, outbox: events, inbox: messages, keys: keys}
}
