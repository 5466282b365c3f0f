// Package tenants decides about the tenants of an outbox: which relays publish their events, and whether they are published at all.
//
//	err := store.Tenants().Pause(ctx, "acme", operator.By{Actor: "ann", Reason: "floods the broker"})
//
// Read first: pause.go:Tenants.Pause, then move.go:Tenants.Move.
package tenants

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// ErrBusy means that a tenant could not be moved now. Nothing was changed; the text says why.
var ErrBusy = errors.New("the tenant has events that were not published")

const (
	// holdFlushes takes the locks of all ordering keys, in the order in which a flush takes some of them: it waits for the
	// flushes that are under way and keeps others out. See outbox_first_lane.
	holdFlushes = `
SELECT count(pg_advisory_xact_lock($1::int, b)) FROM (SELECT b FROM generate_series(0, $2::int - 1) b ORDER BY b) ordered`

	countUnsent = `
SELECT (SELECT count(*) FROM {schema}.outbox_unsent WHERE tenant_id = $1) + (SELECT count(*) FROM {schema}.outbox_held WHERE tenant_id = $1),
	(SELECT count(*) FROM {schema}.outbox_dead WHERE tenant_id = $1)`

	// moveTenant also makes the lanes of a group that is new.
	moveTenant = `
WITH number AS (SELECT nextval('{schema}.outbox_moves')),
layout AS (UPDATE {schema}.oncebox_settings SET lanes = lanes FROM number RETURNING lanes),
made AS (
	INSERT INTO {schema}.outbox_lane (lane, grp)
	SELECT $2::int * lanes + n, $2 FROM layout, generate_series(0, lanes - 1) n ON CONFLICT (lane) DO NOTHING),
moved AS (
	INSERT INTO {schema}.outbox_tenant (tenant_id, grp) SELECT $1, $2 FROM layout
	ON CONFLICT (tenant_id) DO UPDATE SET grp = excluded.grp, since = clock_timestamp())
INSERT INTO {schema}.oncebox_audit (part, actor, action, tenant_id, reason)
SELECT 'outbox', $3, '` + string(operator.Move) + `', $1, 'to group ' || $2 || CASE WHEN $4 <> '' THEN ': ' || $4 ELSE '' END FROM layout`

	listTenants = `SELECT tenant_id, grp, since FROM {schema}.outbox_tenant WHERE grp > 0 ORDER BY grp, tenant_id`
)

// Tenants are the tenants of an outbox. It is safe for concurrent use.
type Tenants struct{ box *outboxdb.Handle }

// New is for package outbox: see outbox.Store.Tenants.
func New(box *outboxdb.Handle) *Tenants { return &Tenants{box} }

// moveBound is how long a move may delay the flushes of all tenants.
const moveBound = time.Second

// Move gives a tenant's events the lanes of a group, which only projectors with this Config.Group publish. Group 0 is
// where every tenant begins. Run projectors of the new group first.
//
// An event must not overtake an earlier one in a lane of another group. So flushes of ordered events, of all tenants,
// wait until the tenant's last event is published, for a second at most. If that takes longer, or if the tenant has a
// dead letter, which could still be replayed, the error is [ErrBusy] and nothing is changed. Try again in a quieter
// moment, when few events of anybody wait: they are searched for the tenant's.
func (t *Tenants) Move(ctx context.Context, tenant string, group int16, by operator.By) error {
	what := fmt.Sprintf("outbox: move tenant %q to group %d", tenant, group)
	l, err := t.box.Layout(ctx, t.box.On(t.box.DB))
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	var bad []error
	if groups := math.MaxInt16/l.Lanes - 1; group < 0 || int(group) > groups {
		bad = append(bad, fmt.Errorf("give a group from 0 to %d", groups))
	}
	if tenant == "" {
		bad = append(bad, errors.New("tenant is empty"))
	}
	bad = append(bad, event.ValidateIdentifier("tenant", tenant), by.Validate(operator.Move))
	if err := errors.Join(bad...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	// Each statement after the locks has to see changes that were committed while it waited for them.
	err = t.box.DB.RunInTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) error {
		return t.move(ctx, tx, l, tenant, group, by)
	})
	switch pgerr.Code(err) {
	case "55P03", "57014", "40P01": // lock_timeout, statement_timeout, deadlock_detected
		err = fmt.Errorf("%w, or transactions are under way that do not end: %w", ErrBusy, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, pgerr.Explain(err))
	}
	return nil
}

func (t *Tenants) move(ctx context.Context, tx bun.Tx, l *outboxdb.Layout, tenant string, group int16, by operator.By) error {
	run := t.box.AdHoc()
	for _, timeout := range []string{"lock_timeout", "statement_timeout"} {
		if _, err := run.Exec(ctx, tx, `SELECT set_config($1, $2, true)`, timeout, strconv.FormatInt(moveBound.Milliseconds(), 10)); err != nil {
			return err
		}
	}
	if _, err := run.Exec(ctx, tx, holdFlushes, l.LockSpace, outboxdb.LockBuckets); err != nil {
		return err
	}
	if err := t.drained(ctx, tx, tenant); err != nil {
		return err
	}
	_, err := run.Exec(ctx, tx, moveTenant, tenant, group, by.Actor, pgsql.CleanText(by.Reason))
	return err
}

// drained waits until all events of the tenant are published.
func (t *Tenants) drained(ctx context.Context, tx bun.Tx, tenant string) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	patience := time.NewTimer(moveBound)
	defer patience.Stop()
	for {
		var unsent, dead int64
		if err := t.box.AdHoc().QueryRow(ctx, tx, countUnsent, []any{tenant}, &unsent, &dead); err != nil {
			return err
		}
		if dead > 0 {
			return fmt.Errorf("%w: %d dead letters: replay or discard them first", ErrBusy, dead)
		}
		if unsent == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-patience.C:
			return fmt.Errorf("%w: %d still wait after %s", ErrBusy, unsent, moveBound)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Group is a tenant in another group than 0.
type Group struct {
	// Tenant is its id.
	Tenant string
	// Group is the group of lanes, see [Tenants.Move].
	Group int16
	// Since is when it was moved there, by the clock of the database.
	Since time.Time
}

// List lists the tenants that have been moved to other groups than 0.
func (t *Tenants) List(ctx context.Context) ([]Group, error) {
	out, err := pgsql.Collect(t.box.AdHoc().Query(ctx, t.box.DB, listTenants), func(scan pgsql.Scan, g *Group) error {
		return scan(&g.Tenant, &g.Group, &g.Since)
	})
	return out, outboxdb.Wrap("list tenants", err)
}
