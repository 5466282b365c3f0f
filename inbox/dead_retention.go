package inbox

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/internal/pace"
)

const (
	oldAge = `SELECT clock_timestamp() - $1::interval`

	// forgetDead is discardDead with an audit of groups instead of single messages.
	forgetDead = takeDead + `, noted AS (
	INSERT INTO {schema}.inbox_audit (actor, action, reason, messages, consumer, tenant_id, topic, event_type)
	SELECT $1::text, $2::text, $3::text, count(*), consumer, tenant_id, topic, event_type FROM d GROUP BY consumer, tenant_id, topic, event_type)` +
		freeKeys
)

// expireDead discards the dead letters that are older than their retention. Their keys go on: held by something that is not
// there any more, they would wait for ever.
func (i *Inbox) expireDead(ctx context.Context) error {
	if i.cfg.DeadRetention <= 0 {
		return nil
	}
	var before time.Time
	if err := i.patient.QueryRow(ctx, i.units.DB(ctx), oldAge, []any{i.cfg.DeadRetention}, &before); err != nil {
		return wrapErr("ask for the time", err)
	}
	by := By{Actor: retentionActor, Reason: "dead for more than " + i.cfg.DeadRetention.String()}
	n, err := i.sweep(ctx, deed{action: ActionExpire, move: forgetDead, by: by}, DeadFilter{DiedBefore: before}, pace.New(0, defaultBulk), nil)
	if n > 0 {
		i.log.WarnContext(ctx, "oncebox: dead letters were deleted by their retention", "messages", n, "died_before", before)
	}
	return err
}
