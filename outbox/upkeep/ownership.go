package upkeep

import (
	"context"
	"fmt"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

const (
	takeOwnership = `
WITH before AS (SELECT coalesce(deployment, '') AS name FROM {schema}.oncebox_settings),
named AS (UPDATE {schema}.oncebox_settings SET deployment = nullif($1, ''))
INSERT INTO {schema}.oncebox_audit (part, actor, action, tenant_id, reason)
SELECT 'outbox', $2, '` + string(operator.TakeOwnership) + `', '', 'from "' || name || '" to "' || $1 || '": ' || $3 FROM before`
)

// TakeOwnership makes the database belong to Config.Deployment. Events that its former deployment has not published are
// published by this one. Projectors that wait for that begin within seconds. by must give a reason.
func (u *Upkeep) TakeOwnership(ctx context.Context, by operator.By) error {
	if err := by.Validate(operator.TakeOwnership); err != nil {
		return fmt.Errorf("outbox: take ownership: %w", err)
	}
	_, err := u.box.AdHoc().Exec(ctx, u.box.DB, takeOwnership, u.box.Deployment, by.Actor, pgsql.CleanText(by.Reason))
	return outboxdb.Wrap("take ownership", err)
}

// Deployment returns the deployment that the database belongs to, see outbox.Config.Deployment. "": any.
func (u *Upkeep) Deployment(ctx context.Context) (string, error) {
	name, err := u.box.Owner(ctx)
	return name, outboxdb.Wrap("read the deployment of the database", err)
}
