package oncetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// client is the broker's connection of one process of the service. It is cut when the process dies.
type client struct {
	*broker

	process *process

	mu        sync.Mutex
	receivers []*receiver
}

// Publish passes messages on, unless the test has set an error or the process dies.
func (c *client) Publish(ctx context.Context, msgs []event.Envelope) error {
	if c.process.reach(BeforePublish) {
		return c.away()
	}
	if err := c.refusal(); err != nil {
		failed := map[int]error{}
		for i := range msgs {
			failed[i] = err
		}
		return &messaging.PublishError{Failed: failed}
	}
	if c.process.reach(AfterPublish) {
		// The broker gets the messages only now. Otherwise consumers of the dying process might handle them first.
		return errors.Join(c.away(), c.broker.Publish(context.WithoutCancel(ctx), msgs))
	}
	return c.broker.Publish(ctx, msgs)
}

// Declare makes subscriptions.
func (c *client) Declare(ctx context.Context, topics []string, subscriptions []messaging.Subscription) error {
	if c.process.isDead() {
		return c.away()
	}
	return c.broker.Declare(ctx, topics, subscriptions)
}

// Subscribe passes the call on, and remembers the receiver until it is closed.
func (c *client) Subscribe(ctx context.Context, s messaging.Subscription) (messaging.Receiver, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process.isDead() {
		return nil, c.away()
	}
	inner, err := c.broker.Subscribe(ctx, s)
	if err != nil {
		return nil, err
	}
	r := &receiver{BacklogReceiver: inner.(messaging.BacklogReceiver), client: c} //nolint:forcetypeassert // the memory broker's are
	c.receivers = append(c.receivers, r)
	return r, nil
}

// waiting returns the number of unsettled messages, and whether all n subscriptions have a receiver.
func (c *client) waiting(ctx context.Context, n int) (messages int64, receiving bool, err error) {
	c.mu.Lock()
	receivers := slices.Clone(c.receivers)
	c.mu.Unlock()
	for _, r := range receivers {
		backlog, err := r.Backlog(ctx)
		if err != nil {
			return 0, false, err
		}
		messages += backlog.Messages
	}
	return messages, len(receivers) >= n, nil
}

// Close closes the receivers of the process. The broker stays open for the next process.
func (c *client) Close() error {
	c.disconnect()
	return nil
}

// disconnect returns unsettled messages to the broker.
func (c *client) disconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.receivers {
		_ = r.BacklogReceiver.Close()
	}
	c.receivers = nil
}

func (c *client) away() error { return fmt.Errorf("%w: %w", messaging.ErrBrokerDown, c.process.dead()) }

// receiver is a receiver that notifies the test's broker when a message is settled.
type receiver struct {
	messaging.BacklogReceiver

	client *client
}

// Ack acknowledges a message, unless the process dies before that.
func (r *receiver) Ack(ctx context.Context, m *messaging.Message) error {
	if r.client.process.reach(BeforeAck) {
		return r.client.away()
	}
	defer r.client.tell()
	return r.BacklogReceiver.Ack(ctx, m)
}

// Close ends the receiver.
func (r *receiver) Close() error {
	r.client.mu.Lock()
	r.client.receivers = slices.DeleteFunc(r.client.receivers, func(other *receiver) bool { return other == r })
	r.client.mu.Unlock()
	return r.BacklogReceiver.Close()
}
