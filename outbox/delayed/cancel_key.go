package delayed

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgerr"
)

const (
	// lockKey returns the event of a key, and waits for a unit that uses the key. A DELETE alone would miss an event that this unit has scheduled after it
	// has cancelled the one before: the new entry of the key is not in the snapshot of the DELETE. ON CONFLICT finds it. A key that nobody has is entered
	// with the nil UUID, so that other units wait for it, too.
	lockKey = `
INSERT INTO {schema}.outbox_dedup AS d (tenant_id, dedup_key, event_id) VALUES ($1, $2, '00000000-0000-0000-0000-000000000000')
ON CONFLICT (tenant_id, dedup_key) DO UPDATE SET repeats = d.repeats RETURNING event_id::text`

	freeKey = `DELETE FROM {schema}.outbox_dedup WHERE tenant_id = $1 AND dedup_key = $2`
)

// CancelKey cancels in tx the delayed event that was scheduled with [event.WithDedupKey], so that a service stores no ids of delayed events:
//
//	_, err := u.Schedule("expiry", HoldEnded{r.ID}, event.WithDelay(hold), event.WithDedupKey("hold "+r.ID))
//	...
//	_, err := app.Outbox.Delayed().CancelKey(ctx, u.DB(), "hold "+r.ID)
//
// The event is cancelled under the conditions of [Events.Cancel]. cancelled is false if its time has come, if it was cancelled before, or if there was
// none: the handler of a delayed event looks whether it still applies.
//
// The key is free afterwards in each case: the same unit may schedule another event with it. Until tx ends, other units that use the key wait. An event
// that the same unit has scheduled is stored at its COMMIT, so CancelKey does not find it.
func (e *Events) CancelKey(ctx context.Context, tx bun.Tx, key string) (cancelled bool, err error) {
	if err := event.ValidateIdentifier("key", key); key == "" || err != nil {
		return false, fmt.Errorf("outbox: cancel the event with the key %q: %w", key, &event.InvalidError{Field: "key", Reason: "is empty or no identifier"})
	}
	var id string
	args := []any{e.tenant(ctx), key}
	if err = e.box.Run.QueryRow(ctx, tx, lockKey, args, &id); err == nil {
		_, err = e.box.Run.Exec(ctx, tx, freeKey, args...)
	}
	if err != nil {
		return false, fmt.Errorf("outbox: cancel the event with the key %q: %w", key, pgerr.Explain(err))
	}
	if id == uuid.Nil.String() {
		return false, nil
	}
	if err = e.Cancel(ctx, tx, id); errors.Is(err, ErrTooLate) {
		return false, nil
	}
	return err == nil, err
}

// tenant returns the tenant whose events a call changes.
func (e *Events) tenant(ctx context.Context) string {
	if tenant := event.TenantFrom(ctx); tenant != "" {
		return tenant
	}
	return e.box.DefaultTenantID
}
