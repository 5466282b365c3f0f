package parked

import (
	"context"

	"github.com/oncebox/oncebox/inbox/dead"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
)

// Failures is for package inbox: see inbox.Inbox.Failures.
func Failures(h *store.Handle, messages *Messages, letters *dead.Letters) *failures.Groups {
	return failures.New(operator.PartInbox, h.AdHoc(), h.DB, store.FailingMessages(), store.DeadMessages(),
		func(ctx context.Context, action operator.Action, g *failures.Group, by operator.By, bulk *operator.Bulk) (int64, error) {
			switch action {
			case operator.Replay:
				return letters.ReplayAll(ctx, operator.DeadFilter{Fingerprint: g.Fingerprint}, by, bulk)
			case operator.Discard:
				return letters.DiscardAll(ctx, operator.DeadFilter{Fingerprint: g.Fingerprint}, by, bulk)
			default:
				return messages.RetryAll(ctx, Filter{Consumer: g.Consumer, Fingerprints: []string{g.Fingerprint}}, by, bulk)
			}
		})
}
