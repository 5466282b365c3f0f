package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

var (
	// ErrTenantPaused means that the tenant is paused already. Nothing was changed.
	ErrTenantPaused = errors.New("the tenant is paused already")
	// ErrTenantNotPaused means that the tenant is not paused. Nothing was changed.
	ErrTenantNotPaused = errors.New("the tenant is not paused")
)

const (
	pauseTenant = `
WITH changed AS (
	INSERT INTO {schema}.outbox_tenant AS t (tenant_id, paused_at, paused_by, pause_reason) VALUES ($1, clock_timestamp(), $2, $3)
	ON CONFLICT (tenant_id) DO UPDATE
	SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason, resumed_at = NULL
	WHERE t.paused_at IS NULL OR t.resumed_at IS NOT NULL RETURNING tenant_id),` + notePause

	resumeTenant = `
WITH changed AS (
	UPDATE {schema}.outbox_tenant SET resumed_at = clock_timestamp()
	WHERE tenant_id = $1 AND paused_at IS NOT NULL AND resumed_at IS NULL RETURNING tenant_id),` + notePause

	// notePause enters what was changed. Arguments: tenant, actor, reason, action.
	notePause = `
noted AS (
	INSERT INTO {schema}.oncebox_audit (part, actor, action, tenant_id, reason)
	SELECT 'outbox', $2, $4, tenant_id, $3 FROM changed)
SELECT count(*) FROM changed`

	listPauses = `
SELECT tenant_id, paused_by, pause_reason, paused_at, extract(epoch FROM clock_timestamp() - paused_at)::float8
FROM {schema}.outbox_tenant WHERE paused_at IS NOT NULL AND resumed_at IS NULL ORDER BY tenant_id`
)

// Pause is a tenant whose events are not published, because an operator decided so.
type Pause struct {
	// Tenant is its id.
	Tenant string
	// Actor and Reason are those of [operator.By].
	Actor, Reason string
	// Since is when it was paused, and Age how long ago that is, by the clock of the database.
	Since time.Time
	Age   time.Duration
}

// PauseTenant stops the publishing of a tenant's events until [Store.ResumeTenant]: those that wait, and those that are recorded meanwhile.
// Nothing is lost, and the order within a key is kept. Other tenants go on. by must give a reason. It returns [ErrTenantPaused] if the tenant
// is paused already.
//
// A projector that has not heard of it may go on for a while: until its next renewal (projector.Config.Renew), and if it does not reach the
// database, until its leases end. What it has handed to the broker by then is published.
//
// The pause is for the relay only. Time goes on: an event that expires meanwhile is a dead letter when the tenant is resumed, and the dead
// letters of the tenant can be replayed and leave then. Delayed events can be cancelled until their time has come.
func (s *Store) PauseTenant(ctx context.Context, tenant string, by operator.By) error {
	return s.changePause(ctx, operator.Pause, pauseTenant, tenant, by, ErrTenantPaused)
}

// ResumeTenant has the events of a tenant published again: what waits under a key first, in its order. It returns [ErrTenantNotPaused] if the
// tenant is not paused.
func (s *Store) ResumeTenant(ctx context.Context, tenant string, by operator.By) error {
	return s.changePause(ctx, operator.Resume, resumeTenant, tenant, by, ErrTenantNotPaused)
}

func (s *Store) changePause(ctx context.Context, action operator.Action, statement, tenant string, by operator.By, unchanged error) error {
	what := fmt.Sprintf("outbox: %s tenant %q", action, tenant)
	bad := []error{event.ValidateIdentifier("tenant", tenant), by.Validate(action)}
	if tenant == "" {
		bad = append(bad, errors.New("tenant is empty"))
	}
	if err := errors.Join(bad...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	var changed int
	if err := s.sql.QueryRow(ctx, s.db, statement, []any{tenant, by.Actor, pgsql.CleanText(by.Reason), string(action)}, &changed); err != nil {
		return fmt.Errorf("%s: %w", what, pgerr.Explain(err))
	}
	if changed == 0 {
		return fmt.Errorf("%s: %w", what, unchanged)
	}
	if s.cfg.PollOnly {
		return nil
	}
	if err := s.box.Notify(ctx, outboxdb.LanesFreed); err != nil {
		s.log.WarnContext(ctx, "oncebox: projectors cannot be told about a tenant, they find it when they renew their leases", "tenant", tenant, "error", err)
	}
	return nil
}

// PausedTenants lists the tenants that are paused, in the order of their ids.
func (s *Store) PausedTenants(ctx context.Context) ([]Pause, error) {
	list, err := pgsql.Collect(s.sql.Query(ctx, s.db, listPauses), func(scan pgsql.Scan, p *Pause) error {
		var age float64
		err := scan(&p.Tenant, &p.Actor, &p.Reason, &p.Since, &age)
		p.Age = seconds(age)
		return err
	})
	return list, outboxdb.Wrap("list paused tenants", err)
}

func seconds(s float64) time.Duration { return max(time.Duration(s*float64(time.Second)), 0) }
