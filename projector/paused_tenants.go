package projector

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// pausedTenants are the tenants that an operator has paused, as of the last beat. Their rows stay where they are and others pass them, as
// they pass those of a paused topic.
//
// That decides nothing about the order. A key is of one tenant, and a worker publishes the rows of a key from the first one on or none of
// them: a worker that hears late of a pause goes on in order, one that hears late of its end begins where it stopped, and a projector that
// takes over a lane begins at its head.
type pausedTenants struct {
	mu      sync.Mutex
	names   []string             // sorted
	resumed map[string]time.Time // those that are not paused any more
}

// set takes what was read. It tells whether other tenants are paused than before.
func (t *pausedTenants) set(list []lanedb.Pause) (changed bool) {
	var names []string
	resumed := map[string]time.Time{}
	for i := range list {
		if p := &list[i]; p.ResumedAt.IsZero() {
			names = append(names, p.Tenant)
		} else {
			resumed[p.Tenant] = p.ResumedAt
		}
	}
	slices.Sort(names)
	t.mu.Lock()
	defer t.mu.Unlock()
	changed = !slices.Equal(names, t.names)
	t.names, t.resumed = names, resumed
	return changed
}

// list returns the tenants that are paused. The caller does not change it.
func (t *pausedTenants) list() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.names
}

// due returns since when a row should have left: since it was recorded, or its time has come, or its tenant was resumed.
func (t *pausedTenants) due(r *outboxdb.Row) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	due := r.CreatedAt
	for _, later := range []time.Time{r.Delivery.NotBefore, t.resumed[r.TenantID]} {
		if later.After(due) {
			due = later
		}
	}
	return due
}

// readPauses asks which tenants are paused. It comes right before leases are renewed or taken, and without an answer none is: so no lane is
// published for longer than its lease after the last answer.
func (r *relay) readPauses(ctx context.Context) error {
	var list []lanedb.Pause
	err := r.answered(ctx, func(ctx context.Context) (err error) {
		list, err = r.lanes.Leases.Pauses(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if r.tenants.set(list) {
		r.p.log.InfoContext(ctx, "oncebox: tenants are paused", "projector", r.p.cfg.Name, "tenants", r.tenants.list())
		r.wake()
	}
	return nil
}

// staying returns what is to be left alone now: topics in trouble, and paused tenants. When any of them comes back, what was skipped for its
// sake comes first. When another tenant is paused, the first rows that are known of topics in trouble may be of that tenant.
func (w *worker) staying() lanedb.Filter {
	now := lanedb.Filter{Topics: w.leftAlone(), Tenants: w.r.tenants.list()}
	back := func(topic string) bool { return !slices.Contains(now.Topics, topic) }
	if slices.ContainsFunc(w.stay.Topics, back) || !slices.Equal(w.stay.Tenants, now.Tenants) {
		for _, l := range w.mine() {
			l.searchAnew()
		}
	}
	w.stay = now
	return now
}
