package delayed

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// noteTimed makes an entry in the audit for the row that findTimed finds. Arguments from $5 on: actor, action, reason.
const noteTimed = findTimed + `
noted AS (
	INSERT INTO {schema}.oncebox_audit (part, actor, action, event_id, tenant_id, topic, event_type, reason)
	SELECT 'outbox', $5::text, $6::text, d.id, d.tenant_id, d.topic, d.event_type, $7::text FROM (
		SELECT o.id, o.tenant_id, o.topic, o.event_type FROM {schema}.outbox o JOIN waiting w USING (lane, seq)
		UNION ALL
		SELECT h.id, h.tenant_id, h.topic, h.event_type FROM {schema}.outbox_held h JOIN held x USING (lane, seq)) d LIMIT 1 RETURNING 1)
SELECT count(*) FROM noted`

// CancelByHand is [Events.Cancel] for operators: in a transaction of its own, with an entry in the audit.
// by must give a reason.
func (e *Events) CancelByHand(ctx context.Context, id string, by operator.By) error {
	return e.actByHand(ctx, id, operator.Cancel, by, func(ctx context.Context, tx bun.Tx) error { return e.Cancel(ctx, tx, id) })
}

// RescheduleByHand is [Events.Reschedule] for operators: in a transaction of its own, with an entry in the audit.
func (e *Events) RescheduleByHand(ctx context.Context, id string, at time.Time, by operator.By) error {
	return e.actByHand(ctx, id, operator.Reschedule, by, func(ctx context.Context, tx bun.Tx) error { return e.Reschedule(ctx, tx, id, at) })
}

// actByHand writes the entry first, while the row exists. If the row has gone meanwhile, the entry is rolled back.
func (e *Events) actByHand(
	ctx context.Context, id string, action operator.Action, by operator.By, act func(context.Context, bun.Tx) error,
) error {
	if err := by.Validate(action); err != nil {
		return fmt.Errorf("outbox: %s %s: %w", action, id, err)
	}
	return e.box.DB.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		err := e.changeTimed(ctx, tx, string(action), noteTimed, id, by.Actor, string(action), pgsql.CleanText(by.Reason))
		if err != nil {
			return err
		}
		return act(ctx, tx)
	})
}
