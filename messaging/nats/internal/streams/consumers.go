package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/messaging"
)

// Group is the priority group of our consumers. A consumer has only one, so the name does not matter.
const Group = "oncebox"

// ackWait is how long the server waits before it delivers an unsettled message of a partition again. The order does not depend on it, because
// a consumer is reset when it gets another process. So it is long: what comes again earlier is in work still.
const ackWait = 10 * time.Minute

// Consumers returns the consumers of a subscription, one for each partition, or the only one of a shared subscription.
func (k *Keeper) Consumers(ctx context.Context, s messaging.Subscription) ([]jetstream.Consumer, error) {
	st, err := k.Open(ctx, s.Topic)
	if err != nil {
		return nil, err
	}
	if err := k.checkType(ctx, st, s); err != nil {
		return nil, err
	}
	wanted := k.consumerConfigs(st, s)
	all := make([]jetstream.Consumer, len(wanted))
	var each errgroup.Group
	for i, want := range wanted {
		each.Go(func() (err error) {
			if all[i], err = k.consumerOf(ctx, st, s, want); err != nil {
				return fmt.Errorf("consumer %s of stream %s: %w", want.Durable, st.Name, err)
			}
			return nil
		})
	}
	return all, each.Wait()
}

// consumerOf returns one consumer of a subscription, if it keeps the guarantees and belongs to the service.
func (k *Keeper) consumerOf(ctx context.Context, st *Stream, s messaging.Subscription, want jetstream.ConsumerConfig) (c jetstream.Consumer, err error) {
	err = k.session.Ask(ctx, st.Name, func(ctx context.Context) (err error) {
		c, err = k.openConsumer(ctx, st, want)
		return err
	})
	if err == nil {
		err = checkConsumer(c, want, st)
	}
	if err != nil {
		return nil, err
	}
	return k.own(ctx, st, s, c)
}

// checkType returns an error if the subscription exists with the other type: its position would be another one, and all messages would come again.
func (k *Keeper) checkType(ctx context.Context, st *Stream, s messaging.Subscription) error {
	other, is := k.Shared(s.Name), messaging.Shared
	if s.Type == messaging.Shared {
		other, is = k.Consumer(s.Name, 0), messaging.Failover
	}
	err := k.session.Ask(ctx, st.Name, func(ctx context.Context) error {
		_, err := k.session.JS.Consumer(ctx, st.Name, other)
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("consumer %s of stream %s: %w", other, st.Name, err)
	default:
		return messaging.Permanent(fmt.Errorf("%w: subscription %q of topic %q is of the type %s, and not %s: give the consumer another name, or, when all of "+
			"its messages may come again: nats consumer rm %s %s", ErrSettings, s.Name, s.Topic, is, s.Type, st.Name, other))
	}
}

// consumerConfigs returns the settings of the consumers of a subscription.
func (k *Keeper) consumerConfigs(st *Stream, s messaging.Subscription) []jetstream.ConsumerConfig {
	common := jetstream.ConsumerConfig{
		Description: fmt.Sprintf("subscription %s of topic %s, oncebox", s.Name, s.Topic), DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1, MaxAckPending: -1, Metadata: metadataOf(s),
	}
	if s.Type == messaging.Shared {
		common.Durable, common.AckWait = k.Shared(s.Name), k.TakeoverTimeout
		return []jetstream.ConsumerConfig{common}
	}
	all := make([]jetstream.ConsumerConfig, st.Partitions)
	for p := range all {
		c := common
		c.Durable, c.FilterSubject, c.AckWait = k.Consumer(s.Name, p), k.Subject(s.Topic, p), ackWait
		c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = jetstream.PriorityPolicyPinned, []string{Group}, k.TakeoverTimeout
		all[p] = c
	}
	return all
}

// openConsumer asks for a consumer, and makes it if it does not exist.
func (k *Keeper) openConsumer(ctx context.Context, st *Stream, want jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	c, err := k.session.JS.Consumer(ctx, st.Name, want.Durable)
	if errors.Is(err, jetstream.ErrNotPullConsumer) {
		return nil, notPulled(st, want)
	}
	if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return c, err
	}
	if k.OnlyChecks {
		return nil, fmt.Errorf("%w: start the service once with ONCEBOX_NATS_DECLARE=make and a user that may make consumers", ErrMissing)
	}
	c, err = k.session.JS.CreateConsumer(ctx, st.Name, want)
	if errors.Is(err, jetstream.ErrConsumerExists) { // another process made it at the same moment
		return k.session.JS.Consumer(ctx, st.Name, want.Durable)
	}
	return c, err
}

// unlike returns the error about a consumer that has another setting.
func unlike(st *Stream, want jetstream.ConsumerConfig, setting string, is, must any, why string) error {
	return messaging.Permanent(fmt.Errorf("%w: %s is %v and must be %v: %s. Delete the consumer, which is made anew then: all messages that the stream keeps "+
		"come again: nats consumer rm %s %s", ErrSettings, setting, is, must, why, st.Name, want.Durable))
}

func notPulled(st *Stream, want jetstream.ConsumerConfig) error {
	return unlike(st, want, "deliver_subject", "set", "empty", "messages are pulled")
}

// checkConsumer returns an error if a consumer has settings that lose messages or their order. Other settings are used as they are.
func checkConsumer(c jetstream.Consumer, want jetstream.ConsumerConfig, st *Stream) error {
	is := c.CachedInfo().Config
	var errs []error
	wrong := func(setting string, is, must any, why string) {
		errs = append(errs, unlike(st, want, setting, is, must, why))
	}
	if is.AckPolicy != want.AckPolicy {
		wrong("ack policy", is.AckPolicy, want.AckPolicy, "each message is acknowledged alone")
	}
	if is.MaxDeliver > 0 {
		wrong("max_deliver", is.MaxDeliver, -1, "the server would stop to deliver a message that a handler fails to handle")
	}
	if is.HeadersOnly {
		wrong("headers_only", true, false, "messages would come without their payload")
	}
	if is.FilterSubject != want.FilterSubject || len(is.FilterSubjects) > 0 {
		wrong("filter", append(is.FilterSubjects, is.FilterSubject), want.FilterSubject, "it would get the messages of other partitions, or too few")
	}
	if is.PriorityPolicy != want.PriorityPolicy || !slices.Equal(is.PriorityGroups, want.PriorityGroups) {
		wrong("priority groups", fmt.Sprint(is.PriorityPolicy, is.PriorityGroups), fmt.Sprint(want.PriorityPolicy, want.PriorityGroups),
			"the server has to choose one process for each partition")
	}
	if is.MaxRequestBatch > 0 || is.MaxRequestExpires > 0 || is.MaxRequestMaxBytes > 0 {
		wrong("max_batch, max_expires or max_bytes", "set", "empty", "the server would refuse requests for messages")
	}
	if want.PinnedTTL > 0 && is.PinnedTTL < time.Second {
		wrong("priority_timeout", is.PinnedTTL, "1s or more", "the server would choose another process all the time")
	}
	if want.PinnedTTL == 0 && is.AckWait < time.Second {
		wrong("ack_wait", is.AckWait, "1s or more", "the server would give messages that are in work to another process")
	}
	return errors.Join(errs...)
}
