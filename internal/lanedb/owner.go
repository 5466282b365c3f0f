package lanedb

import (
	"context"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/internal/outboxdb"
)

// ErrForeignDatabase means that the database belongs to another deployment, see Config.Deployment.
var ErrForeignDatabase = errors.New("outbox: this database belongs to another deployment, or is a copy of that deployment's database, so this process " +
	"does not publish its events. If it shall, call Store.Upkeep().TakeOwnership")

// claimDeployment gives a name to a database without one. It waits for other processes that do the same, and does
// nothing if they were faster. It also does nothing while projectors without a name are alive. They would be shut out
// by the first projector that has a name. If a name is introduced process by process, some processes still run
// without it.
const claimDeployment = `
UPDATE {schema}.oncebox_settings SET deployment = $1 WHERE deployment IS NULL
	AND NOT EXISTS (SELECT FROM {schema}.outbox_projector WHERE deployment = '' AND seen_until > clock_timestamp())`

// CheckOwner returns [ErrForeignDatabase] if the database belongs to another deployment than Config.Deployment. A database that belongs
// to none may be used by all, and becomes this deployment's as soon as no projector without a name is alive.
func (s Leases) CheckOwner(ctx context.Context) error {
	name, err := s.box.Owner(ctx)
	if err == nil && name == "" && s.box.Deployment != "" {
		// Asked again in a statement of its own: what the claim waited for is not in the claim's snapshot.
		if _, err = s.box.Run.Exec(ctx, s.box.DB, claimDeployment, s.box.Deployment); err == nil {
			name, err = s.box.Owner(ctx)
		}
	}
	if err != nil {
		return outboxdb.Wrap("read the deployment of the database", err)
	}
	if name != "" && name != s.box.Deployment {
		return fmt.Errorf("%w (it is %q, Config.Deployment is %q)", ErrForeignDatabase, name, s.box.Deployment)
	}
	return nil
}
