package streams

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/messaging"
)

// Inspect returns an error if a stream or consumer exists that [Keeper.Open] or [Keeper.Consumers] would refuse. It makes and changes nothing, and skips
// what does not exist.
func (k *Keeper) Inspect(ctx context.Context, topics []string, subscriptions []messaging.Subscription) error {
	for _, topic := range topics {
		if _, err := k.inspectStream(ctx, topic); err != nil {
			return err
		}
	}
	for _, s := range subscriptions {
		st, err := k.inspectStream(ctx, s.Topic)
		if err != nil {
			return err
		}
		if st == nil {
			continue
		}
		if err := k.checkType(ctx, st, s); err != nil {
			return err
		}
		var each errgroup.Group
		for _, want := range k.consumerConfigs(st, s) {
			each.Go(func() error { return k.inspectConsumer(ctx, st, s, want) })
		}
		if err := each.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// inspectStream returns the stream of a topic, nil if it does not exist.
func (k *Keeper) inspectStream(ctx context.Context, topic string) (*Stream, error) {
	name := k.Stream(topic)
	handle, err := k.session.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, err)
	}
	st, err := k.checked(topic, handle)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, err)
	}
	return st, nil
}

func (k *Keeper) inspectConsumer(ctx context.Context, st *Stream, s messaging.Subscription, want jetstream.ConsumerConfig) error {
	c, err := k.session.Consumer(ctx, st.Name, want.Durable)
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return nil
	case errors.Is(err, jetstream.ErrNotPullConsumer):
		err = notPulled(st, want)
	case err == nil:
		is := c.CachedInfo().Config
		if err = checkConsumer(c, want, st); err == nil && s.Source != "" {
			err = foreign(s, is.Metadata, st.Name, is.Durable)
		}
	}
	if err != nil {
		return fmt.Errorf("consumer %s of stream %s: %w", want.Durable, st.Name, err)
	}
	return nil
}
