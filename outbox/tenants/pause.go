package tenants

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
	// ErrPaused means that the tenant is paused already. Nothing was changed.
	ErrPaused = errors.New("the tenant is paused already")
	// ErrNotPaused means that the tenant is not paused. Nothing was changed.
	ErrNotPaused = errors.New("the tenant is not paused")
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

	// notePause makes an entry in the audit for the change. Arguments: tenant, actor, reason, action.
	notePause = `
noted AS (
	INSERT INTO {schema}.oncebox_audit (part, actor, action, tenant_id, reason)
	SELECT 'outbox', $2, $4, tenant_id, $3 FROM changed)
SELECT count(*) FROM changed`

	listPauses = `
SELECT tenant_id, paused_by, pause_reason, paused_at, extract(epoch FROM clock_timestamp() - paused_at)::float8
FROM {schema}.outbox_tenant WHERE paused_at IS NOT NULL AND resumed_at IS NULL ORDER BY tenant_id`

	listResumed = `
SELECT tenant_id, resumed_at FROM {schema}.outbox_tenant
WHERE paused_at IS NOT NULL AND resumed_at BETWEEN $1 AND $2 ORDER BY resumed_at DESC, tenant_id LIMIT 100`
)

// Pause is a tenant whose events are not published, because an operator decided so.
type Pause struct {
	// Tenant is its id.
	Tenant string
	// Actor and Reason are the fields of [operator.By].
	Actor, Reason string
	// Since is when it was paused, and Age how long ago that is, by the clock of the database.
	Since time.Time
	Age   time.Duration
}

// Pause stops the publishing of a tenant's events until [Tenants.Resume]: events that wait now, and events that are recorded meanwhile.
// Nothing is lost, and the order within a key is kept. Other tenants go on. by must give a reason. It returns [ErrPaused] if the tenant
// is paused already.
//
// A relay that gets no notification goes on until it renews its leases (projector.Config.Renew), and if it does not reach the database, until the
// leases end. Events that it has handed to the broker by then are published.
//
// The pause concerns the relay only. An event that expires meanwhile becomes a dead letter when the tenant is resumed. Dead letters of the tenant can be
// replayed, and leave when it is resumed. Delayed events can be cancelled until their time has come.
func (t *Tenants) Pause(ctx context.Context, tenant string, by operator.By) error {
	return t.changePause(ctx, operator.Pause, pauseTenant, tenant, by, ErrPaused)
}

// Resume starts the publishing of a tenant's events again. Those under a key leave in their order. It returns [ErrNotPaused] if the
// tenant is not paused.
func (t *Tenants) Resume(ctx context.Context, tenant string, by operator.By) error {
	return t.changePause(ctx, operator.Resume, resumeTenant, tenant, by, ErrNotPaused)
}

func (t *Tenants) changePause(ctx context.Context, action operator.Action, statement, tenant string, by operator.By, unchanged error) error {
	what := fmt.Sprintf("outbox: %s tenant %q", action, tenant)
	bad := []error{event.ValidateIdentifier("tenant", tenant), by.Validate(action)}
	if tenant == "" {
		bad = append(bad, errors.New("tenant is empty"))
	}
	if err := errors.Join(bad...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	var changed int
	if err := t.box.Run.QueryRow(ctx, t.box.DB, statement, []any{tenant, by.Actor, pgsql.CleanText(by.Reason), string(action)}, &changed); err != nil {
		return fmt.Errorf("%s: %w", what, pgerr.Explain(err))
	}
	if changed == 0 {
		return fmt.Errorf("%s: %w", what, unchanged)
	}
	if t.box.PollOnly {
		return nil
	}
	if err := t.box.Notify(ctx, outboxdb.LanesFreed); err != nil {
		t.box.Log.WarnContext(ctx, "oncebox: the relays could not be notified that a tenant was paused, resumed or moved; they see it when they renew "+
			"their leases",
			"tenant", tenant, "error", err)
	}
	return nil
}

// Paused lists the tenants that are paused, in the order of their ids.
func (t *Tenants) Paused(ctx context.Context) ([]Pause, error) {
	list, err := pgsql.Collect(t.box.Run.Query(ctx, t.box.DB, listPauses), func(scan pgsql.Scan, p *Pause) error {
		var age float64
		err := scan(&p.Tenant, &p.Actor, &p.Reason, &p.Since, &age)
		p.Age = seconds(age)
		return err
	})
	return list, outboxdb.Wrap("list paused tenants", err)
}

// Resume is a tenant whose events are published again since a time.
type Resume struct {
	Tenant string
	At     time.Time
}

// Resumed lists up to 100 tenants that were resumed between two times, by the clock of the database, the latest first. A tenant that was paused again
// meanwhile is not in the list.
func (t *Tenants) Resumed(ctx context.Context, from, to time.Time) ([]Resume, error) {
	list, err := pgsql.Collect(t.box.Run.Query(ctx, t.box.DB, listResumed, from, to), func(scan pgsql.Scan, r *Resume) error {
		return scan(&r.Tenant, &r.At)
	})
	return list, outboxdb.Wrap("list resumed tenants", err)
}

func seconds(s float64) time.Duration { return max(time.Duration(s*float64(time.Second)), 0) }
