package outbox

import (
	"sync"
	"time"

	"github.com/oncebox/oncebox/event"
)

// knownTenants remembers for a while that a tenant need not be entered in outbox_tenant: a transaction that entered it,
// or found the table full, was committed. It forgets tenants again, because the row may be missing: that transaction
// may have left the entry to another one, which was rolled back, or the table was restored from a backup.
type knownTenants struct {
	mu    sync.RWMutex
	names map[string]time.Time // the end of the time for which it is known
}

// knownFor is how long a tenant counts as known. A tenant that is missing in the table may wait behind the backlog of others for this time.
const knownFor = time.Minute

// maxKnownTenants bounds the memory. The flushes of further tenants look at the table.
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
