package topics

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
)

const (
	// Patience is how long a call of Publish waits for the admin API.
	Patience = 2 * time.Second
	// rest is how long the API is not asked again after it gave no answer.
	rest = time.Minute
)

// Presence remembers whether the admin API answers. Publishing works without it, and a firewall may drop all requests to it, so publishing
// must not wait for it again and again.
type Presence struct {
	// Patience is how long a call of Publish waits for the API, because it works without it, too.
	Patience time.Duration

	mu      sync.Mutex
	reached bool      // it has answered once
	failed  time.Time // when it last gave no answer
}

// know reports whether the admin API has answered once, and whether it is not to be asked at present.
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

// fail records a failure. It returns true for the first one.
func (p *Presence) fail() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := p.failed.IsZero()
	p.failed = time.Now()
	return first
}

// AskAgain ends the time in which the API is not asked.
func (p *Presence) AskAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Moving the time back, and not clearing it, keeps the failure from being logged as the first one again.
	p.failed = p.failed.Add(-rest)
}

// HasAdmin reports whether the admin API answers. It waits a moment for a broker that was just started. An API that did not answer is asked
// again after rest.
func (k *Keeper) HasAdmin(ctx context.Context) bool {
	reached, resting := k.Presence.know()
	if reached || resting {
		return reached
	}
	asking, cancel := context.WithTimeout(ctx, k.cfg.AdminTimeout)
	defer cancel()
	var err error
	for attempt := 1; ; attempt++ {
		// A refusal for lack of rights is an answer: the API is there, and asking again would not change it.
		if err = k.Admin.reachable(asking); err == nil || answer.IsForbidden(err) || adapters.Pause(asking, attempt) != nil {
			break
		}
	}
	switch {
	case ctx.Err() != nil: // the caller's context has ended, which says nothing about the API
		return false
	case err == nil:
		k.Presence.reach()
		return true
	case k.Presence.fail():
		k.to.Log.WarnContext(ctx, "oncebox: Pulsar's admin API cannot be used. Until it can, topics are created without partitions, "+
			"subscriptions are created by the first consumer that subscribes, and a second service that uses the same consumer name is not "+
			"noticed. Set Config.AdminURL (ONCEBOX_PULSAR_ADMIN_URL)", "url", k.Admin.base, "error", err)
	}
	return false
}

// isTimeout reports that there was no answer, in contrast to a bad one.
func isTimeout(err error) bool {
	late, ok := errors.AsType[net.Error](err)
	return ok && late.Timeout()
}
