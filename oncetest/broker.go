package oncetest

import (
	"context"
	"slices"
	"sync"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
)

// broker is the memory broker, which tells what has not been settled.
type broker struct {
	*memory.Broker

	moved chan struct{} // a token: a message was settled or given back

	mu        sync.Mutex
	published int // calls of Publish
	failures  []error
	receivers []*receiver
}

// Publish fails as often as [Kit.FailNextPublish] has said.
func (b *broker) Publish(ctx context.Context, msgs []event.Envelope) error {
	b.mu.Lock()
	b.published++
	var fail error
	if len(b.failures) > 0 {
		fail, b.failures = b.failures[0], b.failures[1:]
	}
	b.mu.Unlock()
	if fail == nil {
		return b.Broker.Publish(ctx, msgs)
	}
	failed := map[int]error{}
	for i := range msgs {
		failed[i] = fail
	}
	return &messaging.PublishError{Failed: failed}
}

func (b *broker) calls() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.published
}

// Subscribe notes the receiver until it is closed.
func (b *broker) Subscribe(ctx context.Context, s messaging.Subscription) (messaging.Receiver, error) {
	inner, err := b.Broker.Subscribe(ctx, s)
	if err != nil {
		return nil, err
	}
	r := &receiver{BacklogReceiver: inner.(messaging.BacklogReceiver), broker: b} //nolint:forcetypeassert // the memory broker's are
	b.mu.Lock()
	defer b.mu.Unlock()
	b.receivers = append(b.receivers, r)
	return r, nil
}

// waiting is how many messages are not settled, and whether all n subscriptions receive.
func (b *broker) waiting(ctx context.Context, n int) (messages int64, receiving bool, err error) {
	b.mu.Lock()
	receivers := slices.Clone(b.receivers)
	b.mu.Unlock()
	for _, r := range receivers {
		backlog, err := r.Backlog(ctx)
		if err != nil {
			return 0, false, err
		}
		messages += backlog.Messages
	}
	return messages, len(receivers) >= n, nil
}

func (b *broker) tell() {
	select {
	case b.moved <- struct{}{}:
	default:
	}
}

// receiver tells its broker when a message is settled.
type receiver struct {
	messaging.BacklogReceiver

	broker *broker
}

func (r *receiver) Ack(ctx context.Context, m *messaging.Message) error {
	defer r.broker.tell()
	return r.BacklogReceiver.Ack(ctx, m)
}

func (r *receiver) Close() error {
	r.broker.mu.Lock()
	r.broker.receivers = slices.DeleteFunc(r.broker.receivers, func(other *receiver) bool { return other == r })
	r.broker.mu.Unlock()
	return r.BacklogReceiver.Close()
}
