package fetch

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/nats/internal/session"
	"github.com/oncebox/oncebox/messaging/nats/internal/streams"
)

// Config says what a [Receiver] receives.
type Config struct {
	// Subscription has a name for its Consumer, and a Queue, which is per partition.
	Subscription messaging.Subscription
	// Stream is that of the topic, and Consumers are those of the subscription.
	Stream    *streams.Stream
	Consumers []jetstream.Consumer
	// Members is the subject on which the receivers of the subscription announce themselves.
	Members string
	// HandoverTimeout is how long a partition that goes to another process waits for its handlers.
	HandoverTimeout time.Duration
	// Closed is called once, when the receiver closes.
	Closed func(*Receiver)
	Log    *slog.Logger
}

// Start returns a receiver that has begun to fetch.
func Start(s *session.Session, cfg Config) *Receiver {
	r := &Receiver{Gate: adapters.NewGate(), session: s, config: cfg, subscription: cfg.Subscription}
	ctx, end := context.WithCancel(context.Background()) // it ends with Close
	r.end = end
	shared := r.subscription.Type == messaging.Shared
	for i, c := range cfg.Consumers {
		is := c.CachedInfo().Config
		p := &partition{
			receiver: r, index: i, stream: cfg.Stream, consumer: is.Durable, shared: shared, timeout: is.PinnedTTL,
			look: make(chan struct{}, 1), wanted: shared, begun: make(chan struct{}),
		}
		if shared {
			p.timeout = is.AckWait
		}
		r.partitions = append(r.partitions, p)
	}
	if !shared {
		r.members = newMembers(r, cfg.Members, r.subscription.Consumer, r.partitions[0].timeout)
		r.running.Go(func() { r.members.run(ctx) })
	}
	for _, p := range r.partitions {
		r.running.Go(func() { p.run(ctx) })
	}
	return r
}

// Begun returns when the server can know of this receiver: a consumer of a shared subscription gets its part of all messages that are published from then on.
func (r *Receiver) Begun(ctx context.Context) {
	if r.subscription.Type != messaging.Shared {
		return
	}
	select {
	case <-r.partitions[0].begun:
	case <-r.Closed():
	case <-ctx.Done():
	}
}
