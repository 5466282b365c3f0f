package outbox

import (
	"context"

	"github.com/oncebox/oncebox/operator"
)

// noteDeed enters each dead letter of d. Arguments: actor, action, reason.
const noteDeed = `
	INSERT INTO {schema}.oncebox_audit (part, actor, action, reason, event_id, tenant_id, topic, event_type)
	SELECT 'outbox', $1::text, $2::text, $3::text, id, tenant_id, topic, event_type FROM d ORDER BY lane, seq`

// Audit lists what was done by hand or by the retention, newest first. A page has at most limit entries (0: 100) and begins before
// the last one of the page before (nil: with the newest). Only its ID counts. Entries are kept for
// [Config.AuditRetention].
func (s *Store) Audit(ctx context.Context, filter operator.AuditFilter, before *operator.AuditEntry, limit int) ([]operator.AuditEntry, error) {
	return s.audit.List(ctx, s.db, filter, before, limit)
}
