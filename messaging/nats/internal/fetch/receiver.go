package fetch

import (
	"context"
	"fmt"
	"sync"

	natsclient "github.com/nats-io/nats.go"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/nats/internal/binding"
	"github.com/oncebox/oncebox/messaging/nats/internal/session"
)

// Receiver is one consumer of a subscription. Each partition has a goroutine that fetches its messages into the queue, from which Receive takes them.
type Receiver struct {
	*adapters.Gate

	session      *session.Session
	config       Config
	subscription messaging.Subscription
	partitions   []*partition
	members      *members // nil for a shared subscription, whose consumers need not know each other

	end     context.CancelFunc // ends the goroutines
	running sync.WaitGroup

	mu    sync.Mutex // guards all fields below, and the spells of all partitions
	queue []*delivery
	last  uint64 // number of the message that was fetched last
	dead  error  // why no partition is served any more
}

// delivery is one message from its arrival until it is settled.
type delivery struct {
	receiver *Receiver
	spell    *spell
	msg      *natsclient.Msg
	md       *natsclient.MsgMetadata
	number   uint64 // the place in the order of arrival
	attempts int
	held     bool // the caller of Receive has it
	left     bool // the caller has left it at the broker
}

var (
	_ messaging.ConnectedReceiver = (*Receiver)(nil)
	_ messaging.BacklogReceiver   = (*Receiver)(nil)
)

// Connection implements [messaging.ConnectedReceiver]. All partitions share the connection of the broker.
func (r *Receiver) Connection() messaging.Connection { return r.session.State() }

// Receive implements [messaging.Receiver].
func (r *Receiver) Receive(ctx context.Context) (*messaging.Message, error) {
	for {
		m, err := r.next(ctx)
		if m != nil || err != nil {
			return m, err
		}
		select {
		case <-r.Look():
		case <-r.Closed():
		case <-ctx.Done():
		}
	}
}

// next returns nil, nil if no message waits, or if the receiver is paused.
func (r *Receiver) next(ctx context.Context) (*messaging.Message, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.IsClosed():
		return nil, messaging.ErrClosed
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case r.dead != nil:
		return nil, fmt.Errorf("nats: receive: subscription %q of topic %q has ended, subscribe again: %w",
			r.subscription.Name, r.subscription.Topic, r.dead)
	}
	for !r.IsPaused() && len(r.queue) > 0 {
		d := r.queue[0]
		r.queue[0] = nil // else the slice's array would keep the message in memory
		r.queue = r.queue[1:]
		d.spell.waiting--
		d.spell.partition.wake()
		if !d.spell.isOurs() {
			r.drop(d.spell) // as a whole: later messages must not be handed out without this one
			continue
		}
		d.spell.held++
		d.held, d.left = true, false
		d.attempts++
		return messaging.NewMessage(binding.Decode(d.msg, d.md, r.subscription.Topic), d.attempts, d), nil
	}
	return nil, nil //nolint:nilnil // said above
}

// put adds a message that was fetched, or that was given back, to the queue. The caller holds the mutex.
func (r *Receiver) put(d *delivery) {
	r.queue = adapters.InOrder(r.queue, d, func(o *delivery) uint64 { return o.number })
	d.spell.waiting++
	r.Wake()
}

// Ack implements [messaging.Receiver]. nil does not mean that the acknowledgement has arrived.
func (r *Receiver) Ack(_ context.Context, m *messaging.Message) error {
	d, err := r.delivery(m, "ack")
	if err != nil {
		return err
	}
	r.mu.Lock()
	if d.held {
		d.spell.settle(d)
		d.spell.lastAck = d.msg.Reply
	}
	r.mu.Unlock()
	// The message may belong to an earlier spell. It was handled all the same, and the server finds it by its place in the stream.
	if err := r.session.Conn.Publish(d.msg.Reply, ack); err != nil && !session.IsCut(err) {
		return fmt.Errorf("nats: ack: %w", err)
	}
	return nil // over a lost connection it is lost, and the message comes again
}

// The answers to a message, by the protocol of JetStream.
var (
	ack        = []byte("+ACK") //nolint:gochecknoglobals // a constant
	nak        = []byte("-NAK") //nolint:gochecknoglobals // a constant
	inProgress = []byte("+WPI") //nolint:gochecknoglobals // a constant
)

// Redeliver implements [messaging.Receiver]. The message comes again to this receiver, before all messages that were received after it.
func (r *Receiver) Redeliver(_ context.Context, m *messaging.Message) error {
	d, err := r.delivery(m, "redeliver")
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.held {
		d.held = false
		d.spell.held--
		if d.spell.isOurs() {
			r.put(d)
		} else {
			r.drop(d.spell) // the server delivers it again by itself, and later messages must not be handed out before
		}
		d.spell.partition.wake()
	}
	return nil
}

// Leave implements [messaging.BacklogReceiver]. The message comes again to the next process that gets its partition, or after ackWait.
func (r *Receiver) Leave(m *messaging.Message) {
	d, err := r.delivery(m, "leave")
	if err != nil {
		return // after Close nothing is left by this receiver
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.held {
		d.held, d.left = false, true
		d.spell.held--
		d.spell.left++
		d.spell.partition.wake()
	}
}

// delivery returns what is needed to settle the message.
func (r *Receiver) delivery(m *messaging.Message, call string) (*delivery, error) {
	return adapters.Receipt(r.IsClosed(), m, "nats: "+call, func(d *delivery) bool { return d.receiver == r })
}

// Pause implements [messaging.Receiver]. Messages that were fetched already wait in this process.
func (r *Receiver) Pause() {
	r.Gate.Pause()
	r.wakePartitions()
}

// Resume implements [messaging.Receiver].
func (r *Receiver) Resume() {
	r.Gate.Resume()
	r.wakePartitions()
}

func (r *Receiver) wakePartitions() {
	for _, p := range r.partitions {
		p.wake()
	}
}

// die ends the receiver with an error, because it cannot go on.
func (r *Receiver) die(err error) {
	r.mu.Lock()
	r.dead = err
	r.mu.Unlock()
	r.end()
	r.Wake()
}

// Close implements [messaging.Receiver]. It makes sure that the server knows what was acknowledged, and gives up the partitions, so that others need
// not wait for Config.TakeoverTimeout.
func (r *Receiver) Close() error {
	if r.Shut() {
		r.end()
		r.config.Closed(r)
	}
	r.running.Wait()
	return nil
}
