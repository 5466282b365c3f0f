package idempotency

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/operator"
)

// Audit lists the decisions of operators about keys, newest first. A page has at most limit entries (0: 100). before is the last entry of the
// previous page (nil: begin with the newest); only its ID counts. Entries are kept for [Config.AuditRetention].
func (s *Store) Audit(
	ctx context.Context, db bun.IDB, filter operator.AuditFilter, before *operator.AuditEntry, limit int,
) ([]operator.AuditEntry, error) {
	return s.audit.List(ctx, db, filter, before, limit)
}
