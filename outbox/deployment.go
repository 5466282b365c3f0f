package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// ErrForeignDatabase means that the database belongs to another deployment, see Config.Deployment.
var ErrForeignDatabase = errors.New("outbox: this is another deployment's database, or a copy of it, and its events are not published from here; " +
	"if they should be, call Store.TakeOwnership")

const (
	askDeployment = `SELECT coalesce(deployment, '') FROM {schema}.outbox_layout`

	// claimDeployment names a database that is nobody's. It waits for others that do, and does nothing if they have. While
	// projectors without a name are alive it does nothing either: they would be shut out by the first projector that has a name,
	// and where a name is introduced process by process, those that restart still have none.
	claimDeployment = `
UPDATE {schema}.outbox_layout SET deployment = $1 WHERE deployment IS NULL
	AND NOT EXISTS (SELECT FROM {schema}.outbox_projector WHERE deployment = '' AND seen_until > clock_timestamp())`

	takeOwnership = `
WITH before AS (SELECT coalesce(deployment, '') AS name FROM {schema}.outbox_layout),
named AS (UPDATE {schema}.outbox_layout SET deployment = nullif($1, ''))
INSERT INTO {schema}.oncebox_audit (part, actor, action, tenant_id, reason)
SELECT 'outbox', $2, '` + string(operator.TakeOwnership) + `', '', 'from "' || name || '" to "' || $1 || '": ' || $3 FROM before`
)

// CheckOwner returns [ErrForeignDatabase] if the database belongs to another deployment than Config.Deployment. A database that belongs
// to none may be used by all, and becomes this deployment's as soon as no projector without a name is alive.
func (s Relay) CheckOwner(ctx context.Context) error {
	name, err := s.deployment(ctx)
	if err == nil && name == "" && s.cfg.Deployment != "" {
		// Asked again in a statement of its own: what the claim waited for is not in the claim's snapshot.
		if _, err = s.sql.Exec(ctx, s.db, claimDeployment, s.cfg.Deployment); err == nil {
			name, err = s.deployment(ctx)
		}
	}
	if err != nil {
		return wrap("ask whose database this is", err)
	}
	if name != "" && name != s.cfg.Deployment {
		return fmt.Errorf("%w (it is %q, Config.Deployment is %q)", ErrForeignDatabase, name, s.cfg.Deployment)
	}
	return nil
}

func (s *Store) deployment(ctx context.Context) (name string, err error) {
	err = s.sql.QueryRow(ctx, s.db, askDeployment, nil, &name)
	return name, err
}

// TakeOwnership makes the database that of Config.Deployment: what was not published where it comes from is published from here.
// Projectors that wait for it go on within seconds. by must give a reason.
func (s *Store) TakeOwnership(ctx context.Context, by operator.By) error {
	if err := by.Validate(operator.TakeOwnership); err != nil {
		return fmt.Errorf("outbox: take ownership: %w", err)
	}
	_, err := s.adHoc().Exec(ctx, s.db, takeOwnership, s.cfg.Deployment, by.Actor, pgsql.CleanText(by.Reason))
	return wrap("take ownership", err)
}

// Deployment returns the deployment that the database belongs to, see [Config.Deployment]. "": any.
func (s *Store) Deployment(ctx context.Context) (string, error) {
	name, err := s.deployment(ctx)
	return name, wrap("ask whose database this is", err)
}
