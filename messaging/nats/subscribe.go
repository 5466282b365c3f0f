package nats

import (
	"cmp"
	"context"
	"fmt"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/nats/internal/fetch"
)

// Subscribe joins a subscription. It makes its stream and consumers if they do not exist, as [Broker.Declare] does. While the server is away it tries
// again, until ctx is done or Config.ConnectTimeout has passed; then the error is a [messaging.ErrBrokerDown]. After later outages the receiver goes on
// by itself.
//
// Subscription.Queue is per partition.
func (b *Broker) Subscribe(ctx context.Context, s messaging.Subscription) (messaging.Receiver, error) {
	if err := b.ValidateSubscription(s); err != nil {
		return nil, fmt.Errorf("nats: subscribe: %w", err)
	}
	leave, err := b.calls.Enter("nats: subscribe")
	if err != nil {
		return nil, err
	}
	defer leave()
	s.Queue = cmp.Or(s.Queue, 64)
	cfg := fetch.Config{HandoverTimeout: b.cfg.HandoverTimeout, Members: b.Members(&s), Log: b.log, Closed: b.left}
	err = b.insist(ctx, fmt.Sprintf("subscribe %q of topic %q", s.Name, s.Topic), func(ctx context.Context) error {
		if cfg.Consumers, err = b.keeper.Consumers(ctx, s); err != nil {
			return err
		}
		cfg.Stream, err = b.keeper.Open(ctx, s.Topic)
		return err
	})
	if err != nil {
		return nil, err
	}
	r := b.join(s, cfg)
	r.Begun(ctx)
	return r, nil
}

// join starts a receiver.
func (b *Broker) join(s messaging.Subscription, cfg fetch.Config) *fetch.Receiver {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.joined++
	s.Consumer = cmp.Or(s.Consumer, fmt.Sprintf("%s-%d", b.cfg.Name, b.joined)) // the same after a restart if the program subscribes in the same order
	cfg.Subscription = s
	r := fetch.Start(b.session, cfg)
	b.receivers[r] = true
	return r
}

// left is called when a receiver closes.
func (b *Broker) left(r *fetch.Receiver) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.receivers, r)
}
