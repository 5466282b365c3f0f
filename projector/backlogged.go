package projector

import (
	"context"
	"slices"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// backlogShare is which part of a full batch makes a tenant one of the backlogged: a sixteenth.
const backlogShare = 16

// backlogged are the tenants whose backlog fills the lanes. While there are any, they take turns: those at the heads of the lanes,
// then all other tenants, then a backlogged tenant that waits behind the heads. The rows of the latter
// two are looked for beyond the backlog of the others, so that they wait for the search and not for the backlog.
type backlogged struct {
	tenants []string // in the order in which they were found
	heads   []string // those of the last full batch from the heads
	last    int      // of tenants, that had a turn of its own
}

// otherTenants stands for all tenants that are not backlogged.
const otherTenants = ""

// leads counts a batch from the heads of the lanes.
func (b *backlogged) leads(rows []outboxdb.Row, batch int) {
	if !filled(rows, batch) {
		return
	}
	b.join(largest(rows, batch, backlogShare))
	b.heads = largest(rows, batch, 2*backlogShare) // so that chance does not take one of them away
}

// join adds tenants and returns those that are new.
func (b *backlogged) join(large []string) (joined []string) {
	for _, tenant := range large {
		if !slices.Contains(b.tenants, tenant) {
			b.tenants, joined = append(b.tenants, tenant), append(joined, tenant)
		}
	}
	return joined
}

// filled tells whether more rows wait than a batch takes: it has about all the rows that it may have, or all the bytes.
func filled(rows []outboxdb.Row, batch int) bool { return len(rows) >= batch/2 || isCut(rows) }

func isCut(rows []outboxdb.Row) bool {
	for i := range rows {
		if rows[i].Cut {
			return true
		}
	}
	return false
}

// largest returns the tenants that have one share or more of what filled a batch: of its rows, or of its bytes.
func largest(rows []outboxdb.Row, batch, shares int) (large []string) {
	if len(rows) >= batch/2 {
		large = largestBy(rows, shares, func(*outboxdb.Row) int { return 1 })
	}
	if isCut(rows) {
		large = append(large, largestBy(rows, shares, func(r *outboxdb.Row) int { return len(r.Payload) })...)
		slices.Sort(large)
		large = slices.Compact(large)
	}
	return large
}

func largestBy(rows []outboxdb.Row, shares int, weight func(*outboxdb.Row) int) (large []string) {
	byTenant, total := map[string]int{}, 0
	for i := range rows {
		n := weight(&rows[i])
		byTenant[rows[i].TenantID] += n
		total += n
	}
	for tenant, n := range byTenant {
		if n > 0 && n*shares >= total {
			large = append(large, tenant)
		}
	}
	return large
}

// behind returns the backlogged tenants that are not at the heads. The tenant that had the last turn comes last.
func (b *backlogged) behind() (tenants []string) {
	for i := range b.tenants {
		if tenant := b.tenants[(b.last+1+i)%len(b.tenants)]; !slices.Contains(b.heads, tenant) {
			tenants = append(tenants, tenant)
		}
	}
	return tenants
}

// but returns the backlogged tenants without one.
func (b *backlogged) but(tenant string) []string {
	return slices.DeleteFunc(slices.Clone(b.tenants), func(t string) bool { return t == tenant })
}

// fair gives those behind the heads their turns. Each turn takes no longer than that of the heads took.
func (w *worker) fair(ctx context.Context, group []*lane, budget time.Duration) (moved int, err error) {
	var full []*lane
	for _, l := range group {
		if l.full {
			full = append(full, l)
		}
	}
	if len(w.backlogged.tenants) == 0 || len(full) == 0 {
		return 0, nil
	}
	low := w.r.mark.current()
	alone, err := w.alone(ctx, full, low)
	if err != nil {
		return 0, err
	}
	if !alone {
		if moved, err = w.give(ctx, full, otherTenants, low, budget); err != nil {
			return moved, err
		}
	}
	for _, tenant := range w.backlogged.behind() {
		n, err := w.give(ctx, full, tenant, low, budget)
		if moved += n; n > 0 || err != nil {
			w.backlogged.last = slices.Index(w.backlogged.tenants, tenant)
			return moved, err
		}
	}
	return moved, nil
}

// give lets a backlogged tenant, or otherTenants, have a turn: no other backlogged tenant passes.
func (w *worker) give(ctx context.Context, full []*lane, tenant string, low int64, budget time.Duration) (moved int, err error) {
	stay := w.staying() // perhaps more than a moment before
	if slices.Contains(stay.Tenants, tenant) {
		return 0, nil
	}
	lanes := slices.DeleteFunc(slices.Clone(full), func(l *lane) bool { return l.past(tenant).stuck == low })
	for end, more := time.Now().Add(budget), true; more && time.Now().Before(end) && ctx.Err() == nil; {
		if lanes = w.stillReady(lanes); len(lanes) == 0 {
			return moved, nil
		}
		keep := lanedb.Filter{Topics: stay.Topics, Tenants: slices.Concat(stay.Tenants, w.backlogged.but(tenant))}
		p, err := w.pick(ctx, lanes, keep, func(l *lane) *skip { return l.past(tenant) })
		moved, more = moved+p.moved, p.more
		if err != nil {
			return moved, err
		}
		for _, joined := range w.backlogged.join(largest(p.rows, w.r.p.cfg.BatchSize, backlogShare)) {
			for _, l := range w.mine() {
				*l.past(joined) = l.past(otherTenants).clone() // whose turn was its own until now
			}
		}
	}
	return moved, nil
}

// past is the position of the search for a tenant's rows, or for those of otherTenants.
func (l *lane) past(tenant string) *skip {
	if l.tenants == nil {
		l.tenants = map[string]*skip{}
	}
	if l.tenants[tenant] == nil {
		l.tenants[tenant] = &skip{}
	}
	return l.tenants[tenant]
}

// aloneFor is for how long nobody looks whether there are other tenants than the backlogged: how much longer the first event of a
// new one may wait.
const aloneFor = 50 * time.Millisecond

// alone tells that only backlogged tenants have rows, and paused ones. Then the lanes need no search up to the mark: all rows up to it were to be
// seen when it was taken, and a tenant is entered before its first row can be seen.
func (w *worker) alone(ctx context.Context, full []*lane, low int64) (bool, error) {
	if time.Now().Before(w.aloneUntil) {
		return true, nil
	}
	ctx, cancel := w.r.bounded(ctx)
	defer cancel()
	others, err := w.r.lanes.Leases.OtherTenants(ctx, slices.Concat(w.backlogged.tenants, w.stay.Tenants))
	if others || err != nil {
		return false, err
	}
	w.aloneUntil = time.Now().Add(aloneFor)
	for _, l := range full {
		s := l.past(otherTenants)
		s.to = max(s.to, low)
	}
	return true, nil
}

// forgetBacklogged forgets the backlogged tenants when no lane is full any more.
func (w *worker) forgetBacklogged(lanes []*lane) {
	if len(w.backlogged.tenants) == 0 || slices.ContainsFunc(lanes, func(l *lane) bool { return l.full }) {
		return
	}
	w.backlogged, w.aloneUntil = backlogged{}, time.Time{}
	for _, l := range lanes {
		l.tenants = nil
	}
}
