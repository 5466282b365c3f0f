package schedule

import (
	"slices"

	"github.com/oncebox/oncebox/internal/outboxdb"
)

// BacklogShare is the share of a full batch that makes a tenant a backlogged one: a sixteenth.
const BacklogShare = 16

// Backlog lists the tenants whose backlog fills the lanes. Without it, a tenant with a million rows would make all
// tenants behind it wait for a million rows, because a lane is read from its head.
//
// While there are backlogged tenants, each pass gives three turns: to the tenants at the heads of the lanes, then to
// all tenants without a backlog, then to one backlogged tenant that waits behind the heads. For the second and third
// turn the worker searches beyond the backlog of the others, so these tenants wait for the search only. The order is
// kept, because a key belongs to one tenant.
type Backlog struct {
	Tenants []string // in the order in which they were found
	heads   []string // the tenants that fill the last full batch from the heads
	Last    int      // the index of the tenant that had the last turn of its own
}

// OtherTenants stands for all tenants that are not backlogged.
const OtherTenants = ""

// Leads takes a batch from the heads of the lanes. If it is full, its large tenants are backlogged and at the heads.
func (b *Backlog) Leads(rows []outboxdb.Row, batch int) {
	if !filled(rows, batch) {
		return
	}
	b.Join(Largest(rows, batch, BacklogShare))
	b.heads = Largest(rows, batch, 2*BacklogShare) // half the share is enough to stay there, so that chance does not remove a tenant
}

// Join adds tenants and returns the new ones.
func (b *Backlog) Join(large []string) (joined []string) {
	for _, tenant := range large {
		if !slices.Contains(b.Tenants, tenant) {
			b.Tenants, joined = append(b.Tenants, tenant), append(joined, tenant)
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

// Largest returns the tenants that have at least one share of the batch. What filled the batch is shared: its rows,
// its bytes, or both.
func Largest(rows []outboxdb.Row, batch, shares int) (large []string) {
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

// Behind returns the backlogged tenants that are not at the heads, in the order of their turns: the tenant that had
// the last turn comes last.
func (b *Backlog) Behind() (tenants []string) {
	for i := range b.Tenants {
		if tenant := b.Tenants[(b.Last+1+i)%len(b.Tenants)]; !slices.Contains(b.heads, tenant) {
			tenants = append(tenants, tenant)
		}
	}
	return tenants
}

// But returns all backlogged tenants except the given one.
func (b *Backlog) But(tenant string) []string {
	return slices.DeleteFunc(slices.Clone(b.Tenants), func(t string) bool { return t == tenant })
}
