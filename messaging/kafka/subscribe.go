package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/kafka/internal/topics"
)

const (
	// beatsPerSession is how many heartbeats fit into Config.SessionTimeout, so that a lost heartbeat does not end a session.
	beatsPerSession = 6
	// fetchWait is how long the broker may wait for messages before it answers that there are none. A partition that the receiver gets is not fetched before
	// the answer: with the client's default, 5s, its messages would wait as long.
	fetchWait = 500 * time.Millisecond
	// slack is added to Config.HandoverTimeout for the time that the other consumers have to join a group again.
	slack = 30 * time.Second
)

// Subscribe joins a subscription, a consumer group of Kafka. It makes the topic if that does not exist and Config.Declare allows it. While the
// broker is down it tries again, until ctx is done or Config.ConnectTimeout has passed; then the error is a [messaging.ErrBrokerDown]. After later
// outages the receiver connects again by itself.
//
// The first messages come when the broker has given partitions to the receiver, which takes a moment.
func (b *Broker) Subscribe(ctx context.Context, s messaging.Subscription) (messaging.Receiver, error) {
	if err := b.cfg.names().ValidateSubscription(s); err != nil {
		return nil, fmt.Errorf("kafka: subscribe: %w", err)
	}
	ctx, leave, err := b.enter(ctx, "subscribe", b.cfg.ConnectTimeout)
	if err != nil {
		return nil, err
	}
	defer leave()
	what := fmt.Sprintf("subscribe %q of topic %q", s.Name, s.Topic)
	if err := b.start.Wait(ctx, what); err != nil {
		return nil, err
	}
	var (
		is     topics.Owner
		marked bool
	)
	err = adapters.Insist(ctx, func() (err error) {
		if _, err = b.keeper.Ensure(ctx, s.Topic, topics.Read); err == nil {
			is, marked, err = b.keeper.Place(ctx, s)
		}
		return err
	})
	if err != nil {
		return nil, wrap("kafka: "+what, err)
	}
	r, err := b.receiver(s, is, marked)
	if err != nil {
		return nil, wrap("kafka: "+what, err)
	}
	b.mu.Lock()
	b.receivers[r] = true
	b.mu.Unlock()
	if !marked && is.Source != "" {
		r.awaitMark(ctx)
	}
	return r, nil
}

// balancer gives out partitions under a name of its own, so that no other program can join the group.
type balancer struct{ kgo.GroupBalancer }

func (balancer) ProtocolName() string { return topics.Protocol }

// receiver makes a receiver, whose client joins the group in the background.
func (b *Broker) receiver(s messaging.Subscription, is topics.Owner, marked bool) (*receiver, error) {
	r := newReceiver(b, s, is)
	r.isMarked = marked
	name := b.cfg.Name
	if s.Consumer != "" {
		name = s.Consumer
	}
	client, err := kgo.NewClient(b.cfg.clientOptions(b.tls, b.log,
		kgo.ClientID(name),
		kgo.WithHooks(r.links),
		kgo.ConsumerGroup(r.group), kgo.ConsumeTopics(r.full), kgo.Balancers(balancer{kgo.CooperativeStickyBalancer()}),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), // without an offset, or if it is out of range
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(b.cfg.SessionTimeout), kgo.HeartbeatInterval(b.cfg.SessionTimeout/beatsPerSession),
		kgo.RebalanceTimeout(b.cfg.HandoverTimeout+slack),
		kgo.FetchMaxWait(fetchWait),
		kgo.FetchMaxBytes(int32(b.cfg.FetchBytes)), kgo.FetchMaxPartitionBytes(int32(min(b.cfg.FetchBytes, 1<<20))), //nolint:gosec // Validate limits it
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), // not what a transaction of another program took back
		kgo.OnPartitionsAssigned(r.assigned), kgo.OnPartitionsRevoked(r.revoked), kgo.OnPartitionsLost(r.lost),
		kgo.OnOffsetsFetched(r.offsets),
	)...)
	if err != nil {
		return nil, err
	}
	r.client = client
	r.background.Go(r.commitOn)
	return r, nil
}
