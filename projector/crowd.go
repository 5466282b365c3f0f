package projector

import (
	"context"
	"slices"
	"time"

	"github.com/oncebox/oncebox/outbox"
)

// crowdShare is which part of a full batch makes a tenant one that others wait behind: a sixteenth.
const crowdShare = 16

// crowd is the tenants whose backlog fills the lanes. While there are any, the rows of all other tenants are looked for
// beyond that backlog and take turns with it, so that they wait for the search and not for the backlog.
type crowd map[string]bool

// count adds the tenants that have a large part of a batch that was full.
func (c crowd) count(rows []outbox.Row, batch int) {
	if len(rows) < batch/2 {
		return
	}
	byTenant := map[string]int{}
	for i := range rows {
		byTenant[rows[i].TenantID]++
	}
	for tenant, n := range byTenant {
		if n*crowdShare >= len(rows) {
			c[tenant] = true
		}
	}
}

func (c crowd) list() []string {
	out := make([]string, 0, len(c))
	for tenant := range c {
		out = append(out, tenant)
	}
	return out
}

// fair gives the tenants behind the crowd their turn, which takes no longer than the crowd's took.
func (w *worker) fair(ctx context.Context, group []*lane, paused []string, budget time.Duration) (moved int, err error) {
	var crowded []*lane
	low := w.r.mark.current()
	for _, l := range group {
		if l.full && l.tenants.stuck != low {
			crowded = append(crowded, l)
		}
	}
	if len(w.crowd) == 0 || len(crowded) == 0 {
		return 0, nil
	}
	keep := outbox.Filter{Topics: paused, Tenants: w.crowd.list()}
	if alone, err := w.alone(ctx, crowded, keep.Tenants, low); alone || err != nil {
		return 0, err
	}
	for end, more := time.Now().Add(budget), true; more && time.Now().Before(end) && ctx.Err() == nil; {
		if crowded = w.stillReady(crowded); len(crowded) == 0 {
			return moved, nil
		}
		var n int
		n, more, err = w.pick(ctx, crowded, keep, func(l *lane) *skip { return &l.tenants })
		moved += n
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// aloneFor is for how long nobody looks whether there are other tenants than the crowd: how much longer the first event of a
// new one may wait.
const aloneFor = 50 * time.Millisecond

// alone tells that there is nobody but the crowd. Then the lanes need no search up to the mark: all rows up to it were to be
// seen when it was taken, and a tenant is entered before its first row can be seen.
func (w *worker) alone(ctx context.Context, crowded []*lane, crowd []string, low int64) (bool, error) {
	if time.Now().Before(w.aloneUntil) {
		return true, nil
	}
	ctx, cancel := w.r.bounded(ctx)
	defer cancel()
	others, err := w.r.store.OtherTenants(ctx, crowd)
	if others || err != nil {
		return false, err
	}
	w.aloneUntil = time.Now().Add(aloneFor)
	for _, l := range crowded {
		l.tenants.to = max(l.tenants.to, low)
	}
	return true, nil
}

// disperse forgets the crowd when no lane is full any more.
func (w *worker) disperse(lanes []*lane) {
	if len(w.crowd) == 0 || slices.ContainsFunc(lanes, func(l *lane) bool { return l.full }) {
		return
	}
	clear(w.crowd)
	w.aloneUntil = time.Time{}
	for _, l := range lanes {
		l.tenants = skip{}
	}
}
