package rabbitmq

import (
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oncebox/oncebox/messaging"
)

var _ messaging.BacklogReceiver = (*receiver)(nil)

// renewPause is the least time between two renewals of a channel for the messages that were left. Each makes them come again.
const renewPause = time.Minute

// Backlog implements [messaging.BacklogReceiver]. A queue from which this receiver has no message, and which has further consumers, belongs to one of
// them.
func (r *receiver) Backlog(ctx context.Context) (messaging.Backlog, error) {
	out := messaging.Backlog{Topic: r.subscription.Topic}
	if r.IsClosed() {
		return out, messaging.ErrClosed
	}
	failed := func(err error) (messaging.Backlog, error) {
		return out, fmt.Errorf("rabbitmq: backlog of subscription %q of topic %q: %w", r.subscription.Name, r.subscription.Topic, err)
	}
	at, err := r.broker.consumer.wait(ctx)
	if err != nil {
		return failed(err)
	}
	queues := make(map[string]amqp.Queue, len(r.queues))
	for _, name := range r.queues {
		if queues[name], err = inspect(ctx, at, name); err != nil {
			return failed(err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out.Settled = r.acked
	for name, queue := range queues {
		held, left := 0, 0
		if r.attached != nil {
			held, left = r.attached.held[name], r.attached.left[name]
		}
		if held == 0 && queue.Consumers > 1 {
			continue
		}
		out.Messages += int64(queue.Messages + held - left)
		out.Left += int64(left)
	}
	return out, nil
}

// Leave implements [messaging.BacklogReceiver]. A message that is left counts into the prefetch of its queue, so many of them would stop the queue:
// then the channel is closed, and all of them come again.
func (r *receiver) Leave(m *messaging.Message) {
	rc, err := r.receipt(m, "leave")
	if err != nil {
		return // it comes again
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.attached
	if rc.at != a || rc.settled || rc.left {
		return
	}
	rc.left = true
	a.left[rc.queue]++
	if a.left[rc.queue] < max(r.prefetch()/2, 1) || a.renewing {
		return
	}
	a.renewing = true
	// Within the pause it waits: a queue whose places are all taken gets no further call of Leave.
	time.AfterFunc(renewPause-time.Since(r.renewed), func() { r.renewChannel(a) })
}

// renewChannel closes the channel of a, if it is still the present one, so that its messages come again.
func (r *receiver) renewChannel(a *attachment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.attached != a {
		return
	}
	r.renewed = time.Now()
	a.renew <- struct{}{} // it has room for one token, and gets no other
}
