package projector

import (
	"sync/atomic"
	"time"
)

// Progress shows whether a [Projector] works, for health checks.
type Progress struct {
	// Running is true while Run is under way and a database has answered.
	Running bool
	// Last is the time at which the slowest loop last finished a turn without an error: it has renewed the leases,
	// published and settled a batch, or found nothing to publish. Zero until each loop has finished one. While
	// database and broker answer, it is never older than a few seconds, however little there is to do.
	Last time.Time
}

// Stalled reports whether the projector is not running, or has finished nothing for longer than limit.
func (p Progress) Stalled(limit time.Duration) bool { return !p.Running || time.Since(p.Last) > limit }

// Progress returns the present state. It may be called at any time and never waits for a database.
func (p *Projector) Progress() Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.relays == nil {
		return Progress{}
	}
	last := time.Now()
	for _, r := range p.relays {
		last = r.kept.earlier(last)
		for _, w := range r.workers {
			last = w.stepped.earlier(last)
		}
	}
	return Progress{Running: true, Last: last}
}

// pulse is the time at which a loop last finished a turn without an error. The zero value means never.
type pulse struct{ at atomic.Pointer[time.Time] }

func (p *pulse) mark() {
	now := time.Now()
	p.at.Store(&now)
}

// earlier returns the earlier one of two times: t, and that of the pulse.
func (p *pulse) earlier(t time.Time) time.Time {
	at := p.at.Load()
	switch {
	case at == nil:
		return time.Time{}
	case at.Before(t):
		return *at
	default:
		return t
	}
}
