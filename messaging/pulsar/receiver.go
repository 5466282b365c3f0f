package pulsar

import (
	"context"
	"fmt"
	"sync"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/dropped"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/wire"
)

// receiver is one consumer of a subscription.
type receiver struct {
	*adapters.Gate

	broker       *Broker
	subscription messaging.Subscription
	name         string // its name at the broker
	options      pulsarclient.ConsumerOptions

	links   *links
	turns   *turns
	dropped dropped.Detector

	closing sync.Once
	dead    chan error // the error with which the client gave up

	mu sync.Mutex
	// consumer is Pulsar's. A message that an earlier consumer received is not acknowledged: it comes again.
	consumer pulsarclient.Consumer
	renewing bool
	permits  permitWatch
	leaked   int        // permits that the client has lost, see renew
	again    []*receipt // messages that were given back, by number
	last     uint64     // number of the message that was received last
	warned   bool
	silence  silence
	left     left
}

// receipt holds what is needed to settle a message, or to deliver it again.
type receipt struct {
	receiver *receiver
	consumer pulsarclient.Consumer
	message  pulsarclient.Message
	number   uint64
	attempt  int
	settled  bool
}

func newReceiver(b *Broker, s messaging.Subscription) *receiver {
	r := &receiver{
		Gate: adapters.NewGate(), broker: b, subscription: s, dead: make(chan error, 1),
		links: &links{}, turns: newTurns(s.Type == messaging.Failover),
		silence: silence{since: time.Now(), inHand: map[int32]int{}}, left: left{}, permits: permitWatch{heard: map[int32]uint64{}},
	}
	r.links.ask, r.turns.redeliver, r.turns.moved = r.askWhyCut, r.redeliverAll, r.lostPartition
	r.turns.began = r.dropped.Forget
	return r
}

// askWhyCut finds out in the background why the broker cannot be reached, and calls report.
func (r *receiver) askWhyCut(report func(why error)) {
	if r.IsClosed() {
		return
	}
	r.broker.background.Go(func() {
		_, err := r.broker.greeter.listening(r.broker.open)
		if err == nil {
			err = errRefused
		}
		report(err)
	})
}

// redeliverAll asks the broker to deliver again all messages of a partition that are not acknowledged. With idle it does so only if no
// message of the partition is in hand. It returns false if the receiver is closed.
func (r *receiver) redeliverAll(c pulsarclient.Consumer, partition int32, idle bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.IsClosed() {
		return false
	}
	if !idle || r.silence.inHand[partition] == 0 {
		c.NackID(anyOf(partition))
	}
	return true
}

// lostPartition forgets messages that were left in a partition: its next receiver counts them.
func (r *receiver) lostPartition(partition int32) {
	r.dropped.Forget(partition)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left.drop(partition)
}

// Connection implements [messaging.ConnectedReceiver].
func (r *receiver) Connection() messaging.Connection { return r.links.state() }

// Receive implements [messaging.Receiver].
func (r *receiver) Receive(ctx context.Context) (*messaging.Message, error) {
	for {
		if r.IsClosed() {
			return nil, messaging.ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if r.mustRenew() {
			if err := r.renew(ctx); err != nil {
				return nil, err
			}
		}
		m, incoming := r.next()
		if m != nil {
			return m, nil
		}
		// Messages that have arrived go before the wait, so a receiver under load starts no timer.
		select {
		case cm := <-incoming:
			if m := r.deliver(cm.Message); m != nil {
				return m, nil
			}
			continue
		default:
		}
		if m, err := r.await(ctx, incoming); m != nil || err != nil {
			return m, err
		}
	}
}

// await returns when there is a message or something to look at.
func (r *receiver) await(ctx context.Context, incoming <-chan pulsarclient.ConsumerMessage) (*messaging.Message, error) {
	begun, stale := time.Now(), r.dropped.Waiting() > 0
	var silent <-chan time.Time
	if timer := r.patience(); timer != nil {
		defer timer.Stop()
		silent = timer.C
	}
	r.permits.listening.Store(incoming != nil)
	defer r.permits.listening.Store(false)
	select {
	case cm := <-incoming:
		return r.deliver(cm.Message), nil
	case <-silent:
		r.ask(stale && time.Since(begun) >= firstSilence)
	case <-r.Look():
	case <-r.Closed():
	case err := <-r.dead:
		r.dead <- err // kept for the next call
		return nil, fmt.Errorf("pulsar: receive: the broker ended subscription %q of topic %q, subscribe again: %w",
			r.subscription.Name, r.subscription.Topic, err)
	case <-ctx.Done():
	}
	return nil, nil
}

// next returns a message that was given back, if there is one, and else the channel of new messages, which is nil during a pause.
func (r *receiver) next() (*messaging.Message, <-chan pulsarclient.ConsumerMessage) {
	if r.IsPaused() {
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.again) == 0 {
		return nil, r.consumer.Chan()
	}
	next := r.again[0]
	r.again = r.again[1:]
	return r.message(next), nil
}

// deliver returns nil for a message that is not to be handled now, because it will come again.
func (r *receiver) deliver(m pulsarclient.Message) *messaging.Message {
	early, gap := r.turns.isEarly(m), r.dropped.Take(m.ID())
	if early {
		return nil
	}
	r.mu.Lock()
	if gap {
		defer r.mu.Unlock()
		r.lost()
		return nil
	}
	r.last++
	r.silence.broken()
	r.silence.inHand[m.ID().PartitionIdx()]++
	r.permits.heard[m.ID().PartitionIdx()]++
	number, warned := r.last, r.warned
	mixed := !warned && r.subscription.Type == messaging.KeyShared && m.ID().BatchSize() > 1
	r.warned = warned || mixed
	consumer := r.consumer
	r.mu.Unlock()
	if mixed {
		r.broker.log.Warn("oncebox: a Key_Shared subscription receives batches of messages. A batch with several ordering keys goes to one "+
			"consumer, so the order of these keys is lost. Set Config.DisableBatching (ONCEBOX_PULSAR_DISABLE_BATCHING) in the service that "+
			"publishes to this topic",
			"topic", r.broker.keeper.FullName(r.subscription.Topic), "subscription", r.subscription.Name)
	}
	return r.message(&receipt{receiver: r, consumer: consumer, message: m, number: number, attempt: int(m.RedeliveryCount())})
}

// message counts a delivery. The envelope is made anew for each delivery, so that a handler does not see the changes of an earlier one.
func (r *receiver) message(rc *receipt) *messaging.Message {
	rc.attempt++
	return messaging.NewMessage(r.limits().Envelope(rc.message, r.subscription.Topic), rc.attempt, rc)
}

// limits returns the sizes from which on a message becomes a dead letter unread.
func (r *receiver) limits() wire.Limits {
	return wire.Limits{MaxReceived: r.broker.cfg.MaxReceivedBytes, MaxMessage: r.broker.cfg.MaxMessageBytes}
}

// Ack implements [messaging.Receiver]. The acknowledgement is sent together with others, within 100 ms; nil does not mean that it has
// arrived.
func (r *receiver) Ack(_ context.Context, m *messaging.Message) error {
	rc, err := r.receipt(m, "pulsar: ack")
	if err != nil {
		return err
	}
	err = rc.consumer.Ack(rc.message)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.IsClosed():
		return messaging.ErrClosed
	case r.renewing || rc.consumer != r.consumer:
		return nil // an earlier consumer received it: it may come again
	case err != nil:
		return fmt.Errorf("pulsar: ack: %w", err)
	case !rc.settled:
		rc.settled = true
		r.left.remove(rc) // it may have been left at an earlier delivery
		r.silence.inHand[rc.message.ID().PartitionIdx()]--
		r.leak(rc.message)
	}
	return nil
}

// Redeliver implements [messaging.Receiver]. The message comes again to this receiver, before all messages that were received after it. A
// redelivery by the broker would come after them.
func (r *receiver) Redeliver(_ context.Context, m *messaging.Message) error {
	rc, err := r.receipt(m, "pulsar: redeliver")
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if rc.consumer == r.consumer && !r.renewing && !rc.settled { // else the broker delivers it again by itself, if it was not acknowledged
		r.again = adapters.InOrder(r.again, rc, func(o *receipt) uint64 { return o.number })
		r.Wake()
	}
	return nil
}

// receipt returns what is needed to settle the message.
func (r *receiver) receipt(m *messaging.Message, call string) (*receipt, error) {
	return adapters.Receipt(r.IsClosed(), m, call, func(rc *receipt) bool { return rc.receiver == r })
}

// Close implements [messaging.Receiver]. It sends the acknowledgements that wait; the broker delivers the rest again.
func (r *receiver) Close() error {
	r.closing.Do(func() { // a second call waits for the first
		r.mu.Lock()
		r.Shut() // under the lock: from here on no request is sent to the broker
		consumer := r.consumer
		r.mu.Unlock()
		consumer.Close()
		r.broker.mu.Lock()
		delete(r.broker.receivers, r)
		r.broker.mu.Unlock()
	})
	return nil
}
