package projector

import (
	"context"
	"slices"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// backlogShare is the share of a full batch that makes a tenant a backlogged one: a sixteenth.
const backlogShare = 16

// backlogged lists the tenants whose backlog fills the lanes. Without it, a tenant with a million rows would make all
// tenants behind it wait for a million rows, because a lane is read from its head.
//
// While there are backlogged tenants, each pass gives three turns: to the tenants at the heads of the lanes, then to
// all tenants without a backlog, then to one backlogged tenant that waits behind the heads. For the second and third
// turn the worker searches beyond the backlog of the others, so these tenants wait for the search only. The order is
// kept, because a key belongs to one tenant.
type backlogged struct {
	tenants []string // in the order in which they were found
	heads   []string // the tenants that fill the last full batch from the heads
	last    int      // the index of the tenant that had the last turn of its own
}

// otherTenants stands for all tenants that are not backlogged.
const otherTenants = ""

// leads takes a batch from the heads of the lanes. If it is full, its large tenants are backlogged and at the heads.
func (b *backlogged) leads(rows []outboxdb.Row, batch int) {
	if !filled(rows, batch) {
		return
	}
	b.join(largest(rows, batch, backlogShare))
	b.heads = largest(rows, batch, 2*backlogShare) // half the share is enough to stay there, so that chance does not remove a tenant
}

// join adds tenants and returns the new ones.
func (b *backlogged) join(large []string) (joined []string) {
	for _, tenant := range large {
		if !slices.Contains(b.tenants, tenant) {
			b.tenants, joined = append(b.tenants, tenant), append(joined, tenant)
		}
	}
	return joined
}

// filled reports whether more rows wait than a batch takes: the batch has about as many rows, or as many bytes, as it
// may have.
func filled(rows []outboxdb.Row, batch int) bool { return len(rows) >= batch/2 || isCut(rows) }

func isCut(rows []outboxdb.Row) bool {
	for i := range rows {
		if rows[i].Cut {
			return true
		}
	}
	return false
}

// largest returns the tenants that have at least one share of the batch. What filled the batch is shared: its rows,
// its bytes, or both.
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

// behind returns the backlogged tenants that are not at the heads, in the order of their turns: the tenant that had
// the last turn comes last.
func (b *backlogged) behind() (tenants []string) {
	for i := range b.tenants {
		if tenant := b.tenants[(b.last+1+i)%len(b.tenants)]; !slices.Contains(b.heads, tenant) {
			tenants = append(tenants, tenant)
		}
	}
	return tenants
}

// but returns all backlogged tenants except the given one.
func (b *backlogged) but(tenant string) []string {
	return slices.DeleteFunc(slices.Clone(b.tenants), func(t string) bool { return t == tenant })
}

// fair gives their turns to the tenants that wait behind the heads. Each turn takes no longer than the turn of the
// heads took, which is budget. Only full lanes are searched: in the others, the fetch from the heads has seen all
// rows.
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

// give publishes rows of one tenant (or of otherTenants) and skips every other backlogged tenant.
//
// The search may find tenants that have a backlog too. They join the backlogged ones and are skipped from then on.
// Their own search begins where the search of otherTenants is now, because their rows up to there have left with it.
func (w *worker) give(ctx context.Context, full []*lane, tenant string, low int64, budget time.Duration) (moved int, err error) {
	stay := w.staying() // read again: topics may have got into trouble since the last turn
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
				*l.past(joined) = l.past(otherTenants).clone() // it was one of them until now
			}
		}
	}
	return moved, nil
}

// past returns the position of the search for the rows of a tenant, or of otherTenants.
func (l *lane) past(tenant string) *skip {
	if l.tenants == nil {
		l.tenants = map[string]*skip{}
	}
	if l.tenants[tenant] == nil {
		l.tenants[tenant] = &skip{}
	}
	return l.tenants[tenant]
}

// aloneFor is the time for which the answer of alone is kept. The first event of a new tenant may wait this much
// longer.
const aloneFor = 50 * time.Millisecond

// alone reports whether only backlogged and paused tenants have rows. Then the lanes need no search up to the mark
// low, and the search of otherTenants moves there at once. That misses no row: all rows up to the mark were visible
// when the mark was taken, and a tenant is entered in its table before its first row becomes visible. So a tenant
// with a row up to the mark would be in the table that is asked here.
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

// forgetBacklogged forgets the backlogged tenants when no lane is full any more: the fetch from the heads reaches all
// rows then.
func (w *worker) forgetBacklogged(lanes []*lane) {
	if len(w.backlogged.tenants) == 0 || slices.ContainsFunc(lanes, func(l *lane) bool { return l.full }) {
		return
	}
	w.backlogged, w.aloneUntil = backlogged{}, time.Time{}
	for _, l := range lanes {
		l.tenants = nil
	}
}
