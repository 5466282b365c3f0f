package projector

import (
	"context"
	"sync/atomic"
	"time"
)

// Progress tells how a [Projector] gets on.
type Progress struct {
	// Running tells whether Run is under way.
	Running bool
	// Last is when the loop that is furthest behind last came round without an error: the leases renewed, a batch
	// published and settled, or nothing found to publish. Zero before the first time. It is never older than a few
	// seconds while database and broker answer, however little there is to do.
	Last time.Time
}

// Stalled tells whether the projector is not running, or has got nothing done for longer than limit.
func (p Progress) Stalled(limit time.Duration) bool { return !p.Running || time.Since(p.Last) > limit }

// Progress tells how far the projector has come.
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

// pulse is when a loop last came round without an error.
type pulse struct{ at atomic.Pointer[time.Time] }

// after makes a step leave its mark when it succeeds.
func (p *pulse) after(step func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := step(ctx)
		if err == nil {
			p.mark()
		}
		return err
	}
}

func (p *pulse) mark() {
	now := time.Now()
	p.at.Store(&now)
}

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
