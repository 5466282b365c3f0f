package schedule

import (
	"slices"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// Tenants lists the tenants that an operator has paused, as of the last beat. Their rows stay where they are,
// and rows of other tenants pass them, as they pass rows of a paused topic.
//
// The order of events does not depend on the moment at which a worker learns of a pause. A key belongs to one tenant,
// and a worker publishes the rows of a key from the first one on, or none of them. A worker that learns late of a
// pause goes on in order. A worker that learns late of its end begins where it stopped. A projector that takes over a
// lane begins at its head.
type Tenants struct {
	mu      sync.Mutex
	names   []string             // sorted
	resumed map[string]time.Time // tenants that were resumed of late, and when
}

// Set takes the list that was read. It reports whether the paused tenants are others than before.
func (t *Tenants) Set(list []lanedb.Pause) (changed bool) {
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

// List returns the tenants that are paused. The caller must not change it.
func (t *Tenants) List() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.names
}

// Due returns the time from which on a row was free to leave, for the metric of the lag: when it was recorded, when
// its own time came, or when its tenant was resumed, whichever is latest.
func (t *Tenants) Due(r *outboxdb.Row) time.Time {
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
