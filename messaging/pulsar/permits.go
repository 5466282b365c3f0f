package pulsar

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/topics"
)

// permitWatch finds out whether a partition has stopped because the client lost its permits. A permit lets the broker send one message.
// The client loses permits in two cases: with encrypted batches, which leak counts, and with batches that it throws away because it
// cannot parse or decompress them. It reports the second case only in its log.
type permitWatch struct {
	listening atomic.Bool      // Receive waits for a message
	heard     map[int32]uint64 // messages by partition

	// The findings of the last look.
	starved  []int32 // partitions whose messages wait without permits
	atLook   map[int32]uint64
	last     uint64
	listened bool
}

// lookForPermits makes the receiver subscribe again if two looks in a row find a partition that has lost its permits:
//
//   - messages of the partition wait at the broker, and the broker has no permit to send them;
//   - the client has delivered no message of it since the last look, although nothing kept it from doing so. That is known if Receive waited
//     for a message all the time, or if it got more messages of other partitions than the client can have stored.
func (r *receiver) lookForPermits(parts []topics.Backlog) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.permits
	waited := p.listened && r.last == p.last
	passed := r.last-p.last > uint64(max(r.options.ReceiverQueueSize, 1)*(len(parts)+1))
	before := p.starved
	p.starved, p.listened, p.last = nil, p.listening.Load(), r.last
	for _, part := range parts {
		if part.Waiting > 0 && !r.IsPaused() && !r.renewing && r.silence.inHand[part.Partition] == 0 && part.MayGetNothing(r.name) {
			p.starved = append(p.starved, part.Partition)
			// Two looks in a row, because a permit may be on its way to the broker during one of them.
		}
	}
	for _, n := range p.starved {
		if (waited || passed) && slices.Contains(before, n) && p.heard[n] == p.atLook[n] {
			r.broker.log.Warn("oncebox: the broker has messages for this consumer but does not send them, because Pulsar's client lost track of "+
				"how many it asked for; the consumer subscribes again. The client discarded a message before: see its log lines",
				"topic", r.broker.keeper.FullName(r.subscription.Topic), "subscription", r.subscription.Name, "partition", n)
			r.leaked = max(r.leaked, r.options.ReceiverQueueSize)
			r.Wake()
		}
	}
	p.atLook = maps.Clone(p.heard)
}

// leak counts the permits that are lost with an encrypted batch, once it is settled. A permit lets the broker send one message. The broker
// uses one permit for each message of the batch; the client (0.21.0), which cannot open the batch, gives back one permit in all. The caller
// holds the mutex.
func (r *receiver) leak(m pulsarclient.Message) {
	sealed := m.GetEncryptionContext()
	if sealed == nil || sealed.BatchSize < 2 {
		return
	}
	r.leaked += sealed.BatchSize - 1
	r.Wake()
}

// lost makes the receiver subscribe again, because the client has dropped messages: the broker then delivers them again, before later ones. The caller
// holds the mutex.
func (r *receiver) lost() {
	r.broker.log.Warn("oncebox: Pulsar's client has dropped messages after a lost connection, so the consumer subscribes again and gets them once more",
		"topic", r.broker.keeper.FullName(r.subscription.Topic), "subscription", r.subscription.Name)
	r.leaked = max(r.leaked, r.options.ReceiverQueueSize, 1)
}

// mustRenew reports whether messages are lost, or so many permits that the broker may soon send nothing. The caller calls renew then.
func (r *receiver) mustRenew() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	must := r.leaked >= max(r.options.ReceiverQueueSize/2, 1) && !r.IsClosed()
	r.renewing = r.renewing || must
	return must
}

// renew subscribes again: a new consumer starts with all permits. The old consumer sends its acknowledgements before it is closed. Messages
// that it had in hand come again, as after a lost connection.
func (r *receiver) renew(ctx context.Context) error {
	r.mu.Lock()
	old := r.consumer
	r.mu.Unlock()
	old.Close()
	r.forget()

	consumer, err := r.subscribeAgain(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renewing = false
	switch {
	case err == nil && r.IsClosed():
		consumer.Close()
		return messaging.ErrClosed
	case err == nil:
		r.consumer = consumer
		return nil
	case r.IsClosed():
		return messaging.ErrClosed
	case ctx.Err() != nil:
		r.renewing = true // the next call goes on renewing
		r.leaked = r.options.ReceiverQueueSize
		return ctx.Err()
	default:
		return fmt.Errorf("pulsar: receive: Pulsar's client has dropped messages or received an encrypted batch, so the consumer has to "+
			"subscribe again, and that failed for subscription %q of topic %q: %w",
			r.subscription.Name, r.subscription.Topic, err)
	}
}

// forget clears the state of the receiver, before the new consumer uses it.
func (r *receiver) forget() {
	r.turns.reset()
	r.dropped.Reset()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.again, r.leaked = nil, 0
	r.silence, r.left = silence{since: time.Now(), inHand: map[int32]int{}}, left{}
}

// subscribeAgain is bounded like Subscribe, and ends when the broker is closed.
func (r *receiver) subscribeAgain(ctx context.Context) (pulsarclient.Consumer, error) {
	ctx, leave, err := r.broker.calls.Begin(ctx, r.broker.open, "pulsar: receive", r.broker.cfg.ConnectTimeout)
	if err != nil {
		return nil, err
	}
	defer leave()
	return r.subscribe(ctx)
}
