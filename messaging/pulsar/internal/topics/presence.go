package topics

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
)

const (
	// Patience is how long the admin API may keep a publication waiting.
	Patience = 2 * time.Second
	// rest is how long it is left alone after that.
	rest = time.Minute
)

// Presence is what is known of the admin API. Nobody needs it in order to publish, and something on the way to it may
// swallow all that is sent.
type Presence struct {
	// Patience is how long the API may keep a publication waiting, which can do without it.
	Patience time.Duration

	mu      sync.Mutex
	reached bool      // it is there, whatever happens later
	failed  time.Time // when it gave no answer last
}

// know reports whether the admin API is there, and whether it is to be left alone.
func (p *Presence) know() (reached, resting bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reached, !p.failed.IsZero() && time.Since(p.failed) < rest
}

func (p *Presence) reach() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reached = true
}

// fail returns true if there was no failure before.
func (p *Presence) fail() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.failed.IsZero()
	p.failed = time.Now()
	return first
}

// AskAgain ends the time in which the API is left alone.
func (p *Presence) AskAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = p.failed.Add(-rest)
}

// HasAdmin reports whether there is an admin API. A broker that was just started may need a moment. A broker that was not
// there is asked again after rest.
func (k *Keeper) HasAdmin(ctx context.Context) bool {
	reached, resting := k.Presence.know()
	if reached || resting {
		return reached
	}
	asking, cancel := context.WithTimeout(ctx, k.cfg.AdminTimeout)
	defer cancel()
	var err error
	for attempt := 1; ; attempt++ {
		if err = k.Admin.reachable(asking); err == nil || answer.IsForbidden(err) || answer.Pause(asking, attempt) != nil {
			break
		}
	}
	switch {
	case ctx.Err() != nil: // the caller had no time for it
		return false
	case err == nil:
		k.Presence.reach()
		return true
	case k.Presence.fail():
		k.log.WarnContext(ctx, "oncebox: Pulsar's admin API cannot be used; topics are made without partitions and subscriptions by subscribing, "+
			"and another service of the same consumer name is not noticed. Set Config.AdminURL (ONCEBOX_PULSAR_ADMIN_URL)", "url", k.Admin.base, "error", err)
	}
	return false
}

// isTimeout: there was no answer, in contrast to a bad one.
func isTimeout(err error) bool {
	late, ok := errors.AsType[net.Error](err)
	return ok && late.Timeout()
}
