package topics

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
)

// Audience checks that a topic has the subscriptions of its consumers. The broker does not: after a topic was deleted, the next message
// makes it again without its subscriptions, and the broker accepts messages that no consumer will ever receive.
type Audience struct {
	keeper    *Keeper
	topic     string
	unbatched *atomic.Bool // set if a consumer needs each message in an entry of its own

	mu      sync.Mutex                // held during a look
	looked  atomic.Pointer[time.Time] // nil before the first look
	missing []string                  // the subscriptions of the last warning
}

// NewAudience returns an Audience that has not looked yet. It sets unbatched if a consumer needs each message in an entry of its own.
func (k *Keeper) NewAudience(topic string, unbatched *atomic.Bool) *Audience {
	return &Audience{keeper: k, topic: topic, unbatched: unbatched}
}

// LookFirst looks for consumers of the topic before its first message is sent. If the admin API is slow, it gives up, and only background
// looks follow: publishing does not depend on a look.
func (a *Audience) LookFirst() {
	k := a.keeper
	if a.looked.Load() != nil {
		// Another call may have looked while this one waited for the mutex.
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.looked.Load() != nil {
		return
	}
	// Not reached: the API was never seen, so there is nothing to wait for. Resting: it just did not answer.
	if reached, resting := k.Presence.know(); reached && !resting {
		ctx, cancel := context.WithTimeout(k.to.Open, k.Presence.Patience)
		defer cancel()
		switch err := a.look(ctx); {
		case isTimeout(err):
			k.Presence.fail()
			k.to.Log.WarnContext(ctx, "oncebox: Pulsar's admin API does not answer, so topics are published to without checking that they have "+
				"subscriptions", "url", k.Admin.base, "error", err)
		case err != nil:
			return // the broker is in trouble; the next call that makes a producer looks again
		}
	}
	a.now()
}

// LookAgain looks in the background, if it is time. The caller must be within a call that Close waits for.
func (a *Audience) LookAgain() {
	k := a.keeper
	// TryLock: if a look is going on, its result is fresh enough.
	if k.cfg.AudienceInterval < 0 || !a.mu.TryLock() {
		return
	}
	if last := a.looked.Load(); last == nil || time.Since(*last) < k.cfg.AudienceInterval {
		a.mu.Unlock()
		return
	}
	// The time is set before the look, so a slow look does not start further ones.
	a.now()
	k.to.Background.Go(func() {
		defer a.mu.Unlock()
		ctx, cancel := context.WithTimeout(k.to.Open, k.cfg.OperationTimeout)
		defer cancel()
		if k.HasAdmin(ctx) {
			_ = a.look(ctx) // the next look may succeed
		}
	})
}

// now starts the interval anew. A failed look counts too, so that a broken API is not asked for each batch.
func (a *Audience) now() {
	now := time.Now()
	a.looked.Store(&now)
}

// look logs a warning if subscriptions are missing that were not missing at the last look.
func (a *Audience) look(ctx context.Context) error {
	k := a.keeper
	partitions, err := k.Admin.Partitions(ctx, a.topic)
	if err != nil && !answer.IsStatus(err, http.StatusNotFound) {
		return err
	}
	// A subscription covers all partitions, so the first one stands for the topic.
	subscriptions, err := k.Admin.Subscriptions(ctx, FirstPartition(a.topic, partitions))
	if err != nil {
		return err
	}
	// It is never set back. The broker sends a batch to one consumer, whatever keys are in
	// it, and the consumers of this subscription may return at any time.
	for _, s := range subscriptions {
		if s.IsUnbatched() {
			a.unbatched.Store(true)
		}
	}
	var missing []string
	for _, name := range k.subscriptionsOf(a.topic) {
		if subscriptions[name] == nil {
			missing = append(missing, name)
		}
	}
	// No subscription at all is fine with retention: a later consumer can begin at the earliest message.
	if len(subscriptions) == 0 && len(missing) == 0 {
		retained, err := k.Admin.Retained(ctx, a.topic)
		if err != nil {
			return err
		}
		if retained == 0 {
			missing = []string{""}
		}
	}
	// Only changes are logged. The same state may be found every interval.
	if slices.Equal(missing, a.missing) {
		return nil
	}
	switch a.missing = missing; {
	case len(missing) == 0:
		k.to.Log.InfoContext(ctx, "oncebox: the declared subscriptions of a topic exist again", "topic", k.FullName(a.topic))
		return nil
	case missing[0] == "":
		k.to.Log.WarnContext(ctx, "oncebox: a topic has neither a subscription nor retention, so Pulsar deletes its messages; start a consumer of "+
			"the topic, or set a retention, and publish the events again that were published meanwhile (Store.Published().Replay)",
			"topic", k.FullName(a.topic))
	default:
		k.to.Log.WarnContext(ctx, "oncebox: declared subscriptions of a topic are missing: the topic was deleted, or a program unsubscribed; "+
			"Pulsar keeps no messages for them; declare them again (Broker.Declare), and replay the events that were published "+
			"meanwhile", "topic", k.FullName(a.topic), "subscriptions", missing)
	}
	k.to.Unwatched(ctx, a.topic)
	return nil
}

// Unused reports whether nobody has published to a topic since its subscriptions exist, and nobody is connected to publish, or it does not exist.
// Without an admin API the error is errors.ErrUnsupported.
func (k *Keeper) Unused(ctx context.Context, topic string) (bool, error) {
	if !k.HasAdmin(ctx) {
		return false, errors.ErrUnsupported
	}
	partitions, err := k.Admin.Partitions(ctx, topic)
	if answer.IsStatus(err, http.StatusNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	stats, err := k.Admin.Stats(ctx, FirstPartition(topic, partitions)) // a publisher connects to all partitions
	if err != nil || len(stats.Publishers) > 0 {
		return false, err
	}
	return k.Admin.IsEmpty(ctx, topic, partitions)
}
