package rabbitmq

import (
	"context"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/messaging"
)

// receiver is one consumer of a subscription. It consumes all queues of the subscription over one channel, see attachment.
type receiver struct {
	*adapters.Gate

	broker       *Broker
	subscription messaging.Subscription
	name         string // of its consumers at the broker
	queues       []string

	dead chan struct{} // closed when the receiver has ended by itself; why is set then
	why  error

	mu       sync.Mutex
	attached *attachment // nil while there is no connection
	arrived  []*receipt  // messages that have come; Prefetch bounds them
	again    []*receipt  // messages that were given back, by number
	last     uint64      // number of the message that arrived last
	acked    int64
	renewed  time.Time // when the channel was last closed for left messages
}

func newReceiver(b *Broker, s messaging.Subscription) *receiver {
	return &receiver{
		Gate: adapters.NewGate(), broker: b, subscription: s, name: b.nameOf(s), queues: b.topology.queuesOf(s), dead: make(chan struct{}),
	}
}

// run keeps the receiver attached until it is closed.
func (r *receiver) run(a *attachment) {
	ctx, cancel := context.WithCancel(r.broker.open)
	defer cancel()
	go func() {
		select {
		case <-r.Closed():
			cancel()
		case <-ctx.Done():
		}
	}()
	for attempt := 1; ; attempt++ {
		if a != nil {
			r.use(ctx, a)
			attempt = 1
		}
		if ctx.Err() != nil {
			return
		}
		var err error
		if a, err = r.reattach(ctx); err == nil {
			continue
		}
		// A queue that is missing again was deleted a moment ago.
		if isGone := isCode(err, amqp.NotFound) && r.broker.topology.make; lasts(err) && !isGone {
			r.die(err)
			return
		}
		if backoff.Wait(ctx, backoff.Jitter(backoff.Exponential(attempt, firstPause, longestPause))) != nil {
			return
		}
	}
}

// use makes a the present attachment until it ends, and lets no message of it through after that.
func (r *receiver) use(ctx context.Context, a *attachment) {
	r.mu.Lock()
	r.attached = a
	r.mu.Unlock()
	r.Wake()
	about := []any{"topic", r.subscription.Topic, "subscription", r.subscription.Name}
	switch gone, refusal := a.wait(ctx); {
	case gone != "":
		r.broker.log.Error("oncebox: a queue was deleted under its consumer, with all its messages; it is made again", append(about, "queue", gone)...)
	case refusal != nil:
		r.broker.log.Warn("oncebox: RabbitMQ has closed the channel of a consumer; messages that were not settled come again",
			append(about, "error", refusal)...)
	}
	r.drop(a)
	a.close(time.Second)
}

// drop ends a, and forgets its messages: the broker delivers again what was not settled.
func (r *receiver) drop(a *attachment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.ended = true
	r.attached, r.arrived, r.again = nil, nil, nil
}

// reattach consumes again after the connection, or a queue, was lost.
func (r *receiver) reattach(ctx context.Context) (*attachment, error) {
	at, err := r.broker.consumer.wait(ctx)
	if err != nil {
		return nil, err
	}
	a, err := r.attach(ctx, at)
	if isRefusal(err) && r.broker.topology.make { // a queue is gone
		if err = r.broker.topology.declare(ctx, at, r.subscription); err == nil {
			a, err = r.attach(ctx, at)
		}
	}
	return a, err
}

// die ends the receiver by itself.
func (r *receiver) die(err error) {
	r.why = fmt.Errorf("rabbitmq: receive: the broker refuses subscription %q of topic %q, subscribe again: %w", r.subscription.Name,
		r.subscription.Topic, err)
	close(r.dead)
}

// Connection implements [messaging.ConnectedReceiver].
func (r *receiver) Connection() messaging.Connection { return r.broker.consumer.connection() }

// Receive implements [messaging.Receiver].
func (r *receiver) Receive(ctx context.Context) (*messaging.Message, error) {
	for {
		if r.IsClosed() {
			return nil, messaging.ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if m := r.next(); m != nil {
			return m, nil
		}
		select {
		case <-r.Look():
		case <-r.Closed():
		case <-r.dead:
			return nil, r.why
		case <-ctx.Done():
		}
	}
}

// next returns a message that was given back, if there is one, else a message that has come; nil if there is none, or during a pause.
func (r *receiver) next() *messaging.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.attached == nil || r.IsPaused() {
		return nil
	}
	from := &r.again
	if len(*from) == 0 {
		from = &r.arrived
	}
	if len(*from) == 0 {
		return nil
	}
	rc := (*from)[0]
	(*from)[0] = nil // else the slice's array would keep the message in memory
	*from = (*from)[1:]
	return r.message(rc)
}

// message counts a delivery. The envelope is made anew for each delivery, so that a handler does not see the changes of an earlier one. The caller
// holds the mutex.
func (r *receiver) message(rc *receipt) *messaging.Message {
	attempt := rc.attempt
	rc.attempt++
	return messaging.NewMessage(format.Envelope(received(r.subscription.Topic, &rc.delivery, rc.place)), attempt, rc)
}

// Ack implements [messaging.Receiver]. nil does not mean that the acknowledgement has arrived.
func (r *receiver) Ack(_ context.Context, m *messaging.Message) error {
	rc, err := r.receipt(m, "ack")
	if err != nil {
		return err
	}
	r.mu.Lock()
	if rc.settled || rc.at != r.attached {
		r.mu.Unlock()
		return nil // an earlier attachment received it: it may come again
	}
	rc.settled = true
	rc.at.held[rc.queue]--
	r.acked++
	if rc.left { // it was left at an earlier delivery
		rc.at.left[rc.queue]--
	}
	r.mu.Unlock()
	// An error means that the channel has ended. The message comes again.
	_ = rc.delivery.Ack(false)
	return nil
}

// Redeliver implements [messaging.Receiver]. The message comes again to this receiver, before all messages that were received after it. A return to the
// broker would put it behind all others (quorum queues of 3.10).
func (r *receiver) Redeliver(_ context.Context, m *messaging.Message) error {
	rc, err := r.receipt(m, "redeliver")
	if err != nil {
		return err
	}
	r.mu.Lock()
	if rc.at == r.attached && !rc.settled { // else the broker delivers it again by itself
		r.again = adapters.InOrder(r.again, rc, func(o *receipt) uint64 { return o.number })
	}
	r.mu.Unlock()
	r.Wake()
	return nil
}

// receipt returns what is needed to settle the message.
func (r *receiver) receipt(m *messaging.Message, call string) (*receipt, error) {
	return adapters.Receipt(r.IsClosed(), m, "rabbitmq: "+call, func(rc *receipt) bool { return rc.at.receiver == r })
}

// Close implements [messaging.Receiver]. The broker delivers the messages that are not settled again, in their order.
func (r *receiver) Close() error {
	if !r.Shut() {
		return nil
	}
	r.mu.Lock()
	a := r.attached
	r.mu.Unlock()
	if a != nil {
		a.close(r.broker.cfg.CloseTimeout)
	}
	r.broker.mu.Lock()
	defer r.broker.mu.Unlock()
	delete(r.broker.receivers, r)
	return nil
}
