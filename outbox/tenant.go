package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// ErrTenantBusy means that a tenant could not be moved now. Nothing was changed; the text says what is in the way.
var ErrTenantBusy = errors.New("the tenant has events that were not published")

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
layout AS (UPDATE {schema}.outbox_settings SET lanes = lanes FROM number RETURNING lanes),
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

// moveBound is how long a move may hold up the flushes of all tenants.
const moveBound = time.Second

// MoveTenant gives a tenant's events the lanes of a group: those of a projector whose Config.Group is the same. Group 0
// is where every tenant begins. Run projectors of the new group first.
//
// An event must not overtake one in a lane of another group. So the flushes of ordered events, everybody's, are held up
// until the tenant's last event is published, a second at most; if there is more than that, or a dead letter of the
// tenant, which could still be replayed, the error is an [ErrTenantBusy] and nothing is changed. Try again in a quieter
// moment, when few events of anybody wait: they are searched for the tenant's.
func (s *Store) MoveTenant(ctx context.Context, tenant string, group int16, by operator.By) error {
	what := fmt.Sprintf("outbox: move tenant %q to group %d", tenant, group)
	l, err := s.box.Layout(ctx, s.box.On(s.db))
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
	// Each statement after the locks has to see what was committed before they were given.
	err = s.db.RunInTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) error {
		return s.moveTenant(ctx, tx, l, tenant, group, by)
	})
	switch pgerr.Code(err) {
	case "55P03", "57014", "40P01": // lock_timeout, statement_timeout, deadlock_detected
		err = fmt.Errorf("%w, or transactions are under way that do not end: %w", ErrTenantBusy, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, pgerr.Explain(err))
	}
	return nil
}

func (s *Store) moveTenant(ctx context.Context, tx bun.Tx, l *outboxdb.Layout, tenant string, group int16, by operator.By) error {
	run := s.adHoc()
	for _, timeout := range []string{"lock_timeout", "statement_timeout"} {
		if _, err := run.Exec(ctx, tx, `SELECT set_config($1, $2, true)`, timeout, strconv.FormatInt(moveBound.Milliseconds(), 10)); err != nil {
			return err
		}
	}
	if _, err := run.Exec(ctx, tx, holdFlushes, l.LockSpace, outboxdb.LockBuckets); err != nil {
		return err
	}
	if err := s.drained(ctx, tx, tenant); err != nil {
		return err
	}
	_, err := run.Exec(ctx, tx, moveTenant, tenant, group, by.Actor, pgsql.CleanText(by.Reason))
	return err
}

// drained waits until nothing of the tenant is unpublished.
func (s *Store) drained(ctx context.Context, tx bun.Tx, tenant string) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	patience := time.NewTimer(moveBound)
	defer patience.Stop()
	for {
		var unsent, dead int64
		if err := s.adHoc().QueryRow(ctx, tx, countUnsent, []any{tenant}, &unsent, &dead); err != nil {
			return err
		}
		if dead > 0 {
			return fmt.Errorf("%w: %d dead letters: replay or discard them first", ErrTenantBusy, dead)
		}
		if unsent == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-patience.C:
			return fmt.Errorf("%w: %d still wait after %s", ErrTenantBusy, unsent, moveBound)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// knownTenants are those that need not be entered in outbox_tenant for a while, because a transaction that tried to, or found it full, was committed. It may
// have left that to another one, which was rolled back, and the table may be that of a backup.
type knownTenants struct {
	mu    sync.RWMutex
	names map[string]time.Time // until when
}

// knownFor is how long a tenant counts as known. If it was not entered after all, it may wait behind the
// backlog of others for this time.
const knownFor = time.Minute

// maxKnownTenants bounds the memory; the flushes of others cost a look at the table.
const maxKnownTenants = 100_000

func (k *knownTenants) have(evs []event.Envelope) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	now := time.Now()
	for i := range evs {
		if !now.Before(k.names[evs[i].TenantID]) {
			return false
		}
	}
	return true
}

func (k *knownTenants) committed(evs []event.Envelope) {
	if k.have(evs) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.names == nil {
		k.names = map[string]time.Time{}
	}
	until := time.Now().Add(knownFor)
	for i := range evs {
		if _, known := k.names[evs[i].TenantID]; known || len(k.names) < maxKnownTenants {
			k.names[evs[i].TenantID] = until
		}
	}
}

// TenantGroup is a tenant that is not in group 0.
type TenantGroup struct {
	// Tenant is its id.
	Tenant string
	// Group is the group of lanes, see [Store.MoveTenant].
	Group int16
	// Since is when it was moved there, by the clock of the database.
	Since time.Time
}

// Tenants lists the tenants that have been moved to other groups than 0.
func (s *Store) Tenants(ctx context.Context) ([]TenantGroup, error) {
	out, err := pgsql.Collect(s.adHoc().Query(ctx, s.db, listTenants), func(scan pgsql.Scan, t *TenantGroup) error {
		return scan(&t.Tenant, &t.Group, &t.Since)
	})
	return out, outboxdb.Wrap("list tenants", err)
}
