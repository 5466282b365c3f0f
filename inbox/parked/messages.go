// Package parked is for the messages that wait in the database: it lists them, ends the pause of failed messages, or gives them up.
//
//	page, err := box.Parked().List(ctx, parked.Filter{Consumer: "billing", State: parked.KeyFailed, FirstOnly: true}, nil, 0)
//	err = box.Parked().RetryNow(ctx, page[0].Key, operator.By{Actor: "ann"})
//
// A process needs no handlers to use it. Each change is entered in the audit, see inbox.Inbox.Audit.
//
// Read first: list.go:Messages.List, then act.go:Messages.GiveUp.
package parked

import (
	"github.com/oncebox/oncebox/inbox/internal/store"
)

// Messages are the parked messages of an inbox. It is safe for concurrent use.
type Messages struct {
	h    *store.Handle
	keys store.Tables
	// continuesAfterDead reports whether the messages behind a dead letter of a consumer go on.
	continuesAfterDead func(consumer, topic string) bool
}

// New is for package inbox: see inbox.Inbox.Parked.
func New(h *store.Handle, continuesAfterDead func(consumer, topic string) bool) *Messages {
	return &Messages{h: h, keys: store.NewTables(h), continuesAfterDead: continuesAfterDead}
}
