package pulsar

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oncebox/oncebox/messaging"
)

// audience is what is known of the consumers of a topic. The broker takes messages that nobody will ever see, and says that all
// went well: a topic that was deleted is made again without its subscriptions by the next message.
type audience struct {
	mu      sync.Mutex                // held by the goroutine that looks
	looked  atomic.Pointer[time.Time] // nil before the first look
	missing []string                  // what was complained about last
}

// lookFirst looks for consumers of the topic before its first message is sent. If the admin API keeps it waiting it gives
// up, and all looks are left to the background: publishing needs none.
func (t *topic) lookFirst() {
	b, a := t.broker, &t.audience
	if a.looked.Load() != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.looked.Load() != nil {
		return
	}
	if reached, resting := b.presence.know(); reached && !resting {
		ctx, cancel := context.WithTimeout(b.open, b.presence.patience)
		defer cancel()
		switch err := t.look(ctx); {
		case isTimeout(err):
			b.presence.fail()
			b.log.WarnContext(ctx, "oncebox: Pulsar's admin API does not answer: the topics' consumers are unknown", "url", b.admin.base, "error", err)
		case err != nil:
			return // the broker is in trouble; the next producer's maker looks again
		}
	}
	a.now()
}

// lookAgain does so in the background if it is time. The caller is within a call that Close waits for.
func (t *topic) lookAgain() {
	b, a := t.broker, &t.audience
	if b.cfg.AudienceInterval < 0 || !a.mu.TryLock() {
		return
	}
	if last := a.looked.Load(); last == nil || time.Since(*last) < b.cfg.AudienceInterval {
		a.mu.Unlock()
		return
	}
	a.now()
	b.background.Go(func() {
		defer a.mu.Unlock()
		ctx, cancel := context.WithTimeout(b.open, b.cfg.OperationTimeout)
		defer cancel()
		if b.hasAdmin(ctx) {
			_ = t.look(ctx) // the next look may tell
		}
	})
}

func (a *audience) now() {
	now := time.Now()
	a.looked.Store(&now)
}

// look warns of what is missing, when that changes.
func (t *topic) look(ctx context.Context) error {
	b, a := t.broker, &t.audience
	partitions, err := b.admin.partitions(ctx, t.name)
	if err != nil && !isStatus(err, http.StatusNotFound) {
		return err
	}
	subscriptions, err := b.admin.subscriptions(ctx, firstPartition(t.name, partitions))
	if err != nil {
		return err
	}
	for _, s := range subscriptions {
		if s.isUnbatched() {
			t.unbatched.Store(true)
		}
	}
	var missing []string
	for _, name := range b.subscriptionsOf(t.name) {
		if subscriptions[name] == nil {
			missing = append(missing, name)
		}
	}
	if len(subscriptions) == 0 && len(missing) == 0 {
		retained, err := b.admin.retains(ctx, t.name)
		if err != nil {
			return err
		}
		if !retained {
			missing = []string{""}
		}
	}
	if slices.Equal(missing, a.missing) {
		return nil
	}
	switch a.missing = missing; {
	case len(missing) == 0:
		b.log.InfoContext(ctx, "oncebox: a topic has its subscriptions again", "topic", b.fullName(t.name))
		return nil
	case missing[0] == "":
		b.log.WarnContext(ctx, "oncebox: a topic has neither a subscription nor retention, its messages may be gone before somebody subscribes; "+
			"declare the subscription (Config.Subscriptions)", "topic", b.fullName(t.name))
	default:
		b.log.WarnContext(ctx, "oncebox: subscriptions of a topic are gone, it was deleted or somebody unsubscribed; its messages are not kept for them; "+
			"declare them again (Broker.Declare), and replay what was sent meanwhile", "topic", b.fullName(t.name), "subscriptions", missing)
	}
	b.telemetry.Instruments().unwatched(ctx, t.name)
	return nil
}

// subscriptionsOf returns the names of the subscriptions that this program declared, ordered.
func (b *Broker) subscriptionsOf(topic string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for s := range b.declared {
		if s.Topic == topic {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// remember notes that a subscription was declared.
func (b *Broker) remember(s messaging.Subscription) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.declared[identity(s)] = true
}

// identity is s without what differs from one consumer to the next.
func identity(s messaging.Subscription) messaging.Subscription {
	return messaging.Subscription{Topic: s.Topic, Name: s.Name, Type: s.Type, Source: s.Source, Installation: s.Installation}
}
