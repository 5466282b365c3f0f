package inbox

import (
	"context"

	"github.com/oncebox/oncebox/operator"
)

// noteDeeds enters each message of the table expression that follows. Arguments: actor, action, reason.
const noteDeeds = `
	INSERT INTO {schema}.oncebox_audit (part, actor, action, reason, consumer, event_id, tenant_id, source, message_id, topic, event_type)
	SELECT 'inbox', $1::text, $2::text, $3::text, consumer, message_key, tenant_id, source, message_id, topic, event_type FROM `

// Audit lists what was done by hand or by the retention, newest first. A page has at most limit entries (0: 100) and begins
// before the last one of the page before (nil: with the newest). Only its ID counts. Entries are kept for
// [Config.AuditRetention].
func (i *Inbox) Audit(ctx context.Context, filter operator.AuditFilter, before *operator.AuditEntry, limit int) ([]operator.AuditEntry, error) {
	return i.audit.List(ctx, i.store.DB(ctx), filter, before, limit)
}
