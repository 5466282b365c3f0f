package pulsar

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

const (
	// adminPatience is how long the admin API may keep a publication waiting.
	adminPatience = 2 * time.Second
	// adminRest is for how long it is left alone after that.
	adminRest = time.Minute
)

// presence is what is known of the admin API. Nobody needs it in order to publish, and something on the way to it may
// swallow all that is sent.
type presence struct {
	patience time.Duration // for how long it may keep a publication waiting, which can do without it

	mu      sync.Mutex
	reached bool      // it is there, whatever happens later
	failed  time.Time // when it gave no answer last
}

// know tells whether the admin API is there, and whether it is to be left alone.
func (p *presence) know() (reached, resting bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reached, !p.failed.IsZero() && time.Since(p.failed) < adminRest
}

func (p *presence) reach() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reached = true
}

// fail returns true if there was no failure before.
func (p *presence) fail() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.failed.IsZero()
	p.failed = time.Now()
	return first
}

// hasAdmin tells whether there is an admin API. A broker that was just started may need a moment. A broker that was not
// there is asked again after adminRest.
func (b *Broker) hasAdmin(ctx context.Context) bool {
	reached, resting := b.presence.know()
	if reached || resting {
		return reached
	}
	asking, cancel := context.WithTimeout(ctx, b.cfg.AdminTimeout)
	defer cancel()
	var err error
	for attempt := 1; ; attempt++ {
		if err = b.admin.reachable(asking); err == nil || isForbidden(err) || pause(asking, attempt) != nil {
			break
		}
	}
	switch {
	case ctx.Err() != nil: // the caller had no time for it
		return false
	case err == nil:
		b.presence.reach()
		return true
	case b.presence.fail():
		b.log.WarnContext(ctx, "oncebox: Pulsar's admin API cannot be used; topics are made without partitions and subscriptions by subscribing, "+
			"and another service of the same consumer name is not noticed. Set Config.AdminURL (ONCEBOX_PULSAR_ADMIN_URL)", "url", b.admin.base, "error", err)
	}
	return false
}

// isTimeout: there was no answer, in contrast to a bad one.
func isTimeout(err error) bool {
	late, ok := errors.AsType[net.Error](err)
	return ok && late.Timeout()
}
