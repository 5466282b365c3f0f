package projector

import (
	"time"

	"github.com/oncebox/oncebox/projector/internal/progress"
	"github.com/oncebox/oncebox/retry"
)

// Hasten makes the pauses after failures short, before p runs.
func Hasten(p *Projector) {
	short := retry.Policy{Delay: 10 * time.Millisecond, MaxDelay: 50 * time.Millisecond}
	p.pauses = pauses{loop: short, topic: short, silent: short}
}

// ObserveOften makes p read the state of the outbox often. It is called before p runs.
func ObserveOften(p *Projector) { p.pauses.observe = 50 * time.Millisecond }

// ObserveSeldom makes p read the state of the outbox once an hour. It is called before p runs.
func ObserveSeldom(p *Projector) { p.pauses.observe = time.Hour }

// Mark returns the low-water mark of p's first store.
func Mark(p *Projector) int64 {
	low, _ := marks(p)
	return low
}

// SearchLimit returns the number up to which searches in p's first store remember what they have passed.
func SearchLimit(p *Projector) int64 {
	low, short := marks(p)
	return short.Limit(low).To
}

func marks(p *Projector) (low int64, short progress.Shortcut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.relays) > 0 {
		low, short = p.relays[0].mark.now()
	}
	return low, short
}

// PausedTenants returns the tenants that a running projector knows to be paused.
func PausedTenants(p *Projector) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.relays) == 0 {
		return nil
	}
	return p.relays[0].leases.Tenants.List()
}
