package memory

import (
	"cmp"
	"context"
	"fmt"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
)

// receiver is one consumer of a subscription. The broker's mutex guards its fields.
type receiver struct {
	broker *Broker
	sub    *subscription
	name   string
	paused bool
	closed bool

	news chan struct{} // has a token if something has changed since Receive last looked
	done chan struct{} // closed by close
}

// newReceiver makes up a name if the consumer has none. The number keeps the order of joining, by which
// slots are divided.
func newReceiver(b *Broker, sub *subscription, s messaging.Subscription, n int) *receiver {
	name := cmp.Or(s.Consumer, fmt.Sprintf("consumer-%06d", n))
	return &receiver{broker: b, sub: sub, name: name, news: make(chan struct{}, 1), done: make(chan struct{})}
}

// Receive implements [messaging.Receiver].
func (r *receiver) Receive(ctx context.Context) (*messaging.Message, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		m, err := r.next()
		if m != nil || err != nil {
			return m, err
		}
		// A token may be old, so the loop looks again. It cannot be lost: it is put in after the change,
		// and stays until somebody takes it.
		select {
		case <-r.news:
		case <-r.done:
		case <-ctx.Done():
		}
	}
}

// next returns nil, nil if no message waits. Whatever makes a message available later puts a token into news.
func (r *receiver) next() (*messaging.Message, error) {
	r.broker.mu.Lock()
	defer r.broker.mu.Unlock()
	if r.closed {
		return nil, messaging.ErrClosed
	}
	// Resume wakes Receive again.
	if r.paused {
		return nil, nil //nolint:nilnil // said above
	}
	d := r.sub.take(r)
	if d == nil {
		return nil, nil //nolint:nilnil // said above
	}
	return messaging.NewMessage(clone(&d.entry.env), d.attempts, d), nil
}

// Ack implements [messaging.Receiver].
func (r *receiver) Ack(_ context.Context, m *messaging.Message) error {
	return r.with(m, "ack", r.sub.settle)
}

// Redeliver implements [messaging.Receiver]. The message comes again before all waiting messages of its partition or group of keys. If another
// receiver has the message by now, nothing happens.
func (r *receiver) Redeliver(_ context.Context, m *messaging.Message) error {
	return r.with(m, "redeliver", func(d *delivery) {
		if d.holder == r { // holder is nil if the message is settled
			r.sub.giveBack(d)
		}
	})
}

func (r *receiver) with(m *messaging.Message, call string, fn func(*delivery)) error {
	r.broker.mu.Lock()
	defer r.broker.mu.Unlock()
	d, err := adapters.Receipt(r.closed, m, "memory: "+call, func(d *delivery) bool { return d.slot.sub == r.sub })
	if err == nil {
		fn(d)
	}
	return err
}

// Backlog implements [messaging.BacklogReceiver].
func (r *receiver) Backlog(context.Context) (messaging.Backlog, error) {
	r.broker.mu.Lock()
	defer r.broker.mu.Unlock()
	if r.closed {
		return messaging.Backlog{}, messaging.ErrClosed
	}
	return r.sub.backlog(r), nil
}

// Leave implements [messaging.BacklogReceiver].
func (r *receiver) Leave(m *messaging.Message) {
	// The error is ignored: after Close nothing is left at the broker by this receiver anyway.
	_ = r.with(m, "leave", func(d *delivery) { d.left = d.holder == r })
}

// Pause implements [messaging.Receiver].
func (r *receiver) Pause() { r.setPaused(true) }

// Resume implements [messaging.Receiver].
func (r *receiver) Resume() { r.setPaused(false) }

func (r *receiver) setPaused(paused bool) {
	r.broker.mu.Lock()
	defer r.broker.mu.Unlock()
	r.paused = paused
	r.wake()
}

// Close implements [messaging.Receiver].
func (r *receiver) Close() error {
	r.broker.mu.Lock()
	defer r.broker.mu.Unlock()
	if !r.closed {
		r.sub.leave(r)
	}
	return nil
}

// close is called with the mutex held, by the subscription that the receiver leaves.
func (r *receiver) close() {
	r.closed = true
	close(r.done)
}

// wake never blocks: the channel holds one token, and one is enough for any number of changes.
func (r *receiver) wake() {
	select {
	case r.news <- struct{}{}:
	default: // a token is there already, so Receive will look
	}
}
