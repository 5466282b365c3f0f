package ops

import (
	"context"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/dead"
)

// DeadLetters reads and treats the dead letters of both boxes, for command line and console. Do not name a box whose
// store the view does not have.
type DeadLetters struct {
	outbox *outbox.Store
	inbox  *inbox.Inbox
}

// List lists letters of a box, the oldest first, without payloads. A page has at most limit letters (0: 100) and begins
// after the letter after (nil: at the beginning).
func (d DeadLetters) List(ctx context.Context, box Box, filter operator.DeadFilter, after *Letter, limit int) ([]Letter, error) {
	if box == BoxInbox {
		page, err := d.inbox.Dead().List(ctx, filter, after.afterInbox(), limit)
		return each(page, letterOfInbox), err
	}
	page, err := d.outbox.Dead().List(ctx, filter, after.afterOutbox(), limit)
	return each(page, letterOfOutbox), err
}

// each copies a page of either box into the common type.
func each[D any](page []D, letter func(*D) Letter) []Letter {
	list := make([]Letter, len(page))
	for n := range page {
		list[n] = letter(&page[n])
	}
	return list
}

// Count counts letters of a box.
func (d DeadLetters) Count(ctx context.Context, box Box, filter operator.DeadFilter) (int64, error) {
	if box == BoxInbox {
		return d.inbox.Dead().Count(ctx, filter)
	}
	return d.outbox.Dead().Count(ctx, filter)
}

// CountTo is [DeadLetters.Count] that stops at most.
func (d DeadLetters) CountTo(ctx context.Context, box Box, filter operator.DeadFilter, most int) (int64, error) {
	if box == BoxInbox {
		return d.inbox.Dead().CountTo(ctx, filter, most)
	}
	return d.outbox.Dead().CountTo(ctx, filter, most)
}

// Show returns one letter with its payload.
func (d DeadLetters) Show(ctx context.Context, ref LetterRef) (Letter, error) {
	if ref.Box == BoxInbox {
		letter, err := d.inbox.Dead().Show(ctx, ref.Message())
		return letterOfInbox(&letter), err
	}
	// Tenants may use the same id, so the tenant is a part of the reference.
	letter, err := d.outbox.Dead().Show(ctx, ref.ID, dead.OfTenant(ref.Tenant))
	return letterOfOutbox(&letter), err
}

// Act replays or discards one letter.
func (d DeadLetters) Act(ctx context.Context, action operator.Action, ref LetterRef, by operator.By) error {
	switch {
	case ref.Box == BoxInbox && action == operator.Discard:
		return d.inbox.Dead().Discard(ctx, ref.Message(), by)
	case ref.Box == BoxInbox:
		return d.inbox.Dead().Replay(ctx, ref.Message(), by)
	case action == operator.Discard:
		return d.outbox.Dead().Discard(ctx, ref.ID, by, dead.OfTenant(ref.Tenant))
	default:
		return d.outbox.Dead().Replay(ctx, ref.ID, by, dead.OfTenant(ref.Tenant))
	}
}

// ActOnAll replays or discards all letters of a box that the filter selects. It returns their number, also
// beside an error.
func (d DeadLetters) ActOnAll(
	ctx context.Context, action operator.Action, box Box, filter operator.DeadFilter, by operator.By, bulk *operator.Bulk,
) (int64, error) {
	switch {
	case box == BoxInbox && action == operator.Discard:
		return d.inbox.Dead().DiscardAll(ctx, filter, by, bulk)
	case box == BoxInbox:
		return d.inbox.Dead().ReplayAll(ctx, filter, by, bulk)
	case action == operator.Discard:
		return d.outbox.Dead().DiscardAll(ctx, filter, by, bulk)
	default:
		return d.outbox.Dead().ReplayAll(ctx, filter, by, bulk)
	}
}

// ReplayEdited replays one letter with another payload.
func (d DeadLetters) ReplayEdited(ctx context.Context, ref LetterRef, payload []byte, by operator.By) error {
	if ref.Box == BoxInbox {
		return d.inbox.Dead().ReplayEdited(ctx, ref.Message(), payload, by)
	}
	return d.outbox.Dead().ReplayEdited(ctx, ref.ID, payload, by, dead.OfTenant(ref.Tenant))
}
