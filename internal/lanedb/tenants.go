package lanedb

import (
	"context"
	"database/sql"
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

const (
	pauses = `
SELECT tenant_id, resumed_at FROM {schema}.outbox_tenant
WHERE paused_at IS NOT NULL AND (resumed_at IS NULL OR resumed_at > clock_timestamp() - $1::interval) ORDER BY tenant_id`

	// resumedWithin is the time after the end of a pause for which the tenant's events count as waiting since that
	// end, and not since they were recorded.
	resumedWithin = 24 * time.Hour

	otherTenants = `SELECT ` + outboxdb.TenantsFull + ` OR EXISTS (SELECT FROM {schema}.outbox_tenant WHERE tenant_id <> ALL ($1::text[]))`
)

// Pause is a tenant that an operator has paused.
type Pause struct {
	Tenant string
	// ResumedAt is the time at which it was resumed. Zero: it is paused.
	ResumedAt time.Time
}

// Pauses lists the tenants that are paused, and the tenants that were resumed within a day, whose events count as
// waiting since then.
func (s Leases) Pauses(ctx context.Context) ([]Pause, error) {
	list, err := pgsql.Collect(s.box.Run.Query(ctx, s.box.DB, pauses, resumedWithin), func(scan pgsql.Scan, p *Pause) error {
		var at sql.NullTime
		err := scan(&p.Tenant, &at)
		p.ResumedAt = at.Time
		return err
	})
	return list, outboxdb.Wrap("list paused tenants", err)
}

// OtherTenants reports whether a tenant that is not among these may have committed an event.
func (s Leases) OtherTenants(ctx context.Context, tenants []string) (bool, error) {
	var others bool
	err := s.box.Run.QueryRow(ctx, s.box.DB, otherTenants, []any{notNil(tenants)}, &others)
	return others, outboxdb.Wrap("look for other tenants", err)
}
