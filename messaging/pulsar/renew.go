package pulsar

import (
	"context"
	"fmt"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/messaging"
)

// leak counts the permits that are lost with an encrypted batch, once it is settled. A permit is the broker's leave to send one
// message. It takes one for each message of the batch; the client (0.21.0), which cannot open it, gives back one for all. The
// caller holds the mutex.
func (r *receiver) leak(m pulsarclient.Message) {
	sealed := m.GetEncryptionContext()
	if sealed == nil || sealed.BatchSize < 2 {
		return
	}
	r.leaked += sealed.BatchSize - 1
	r.wake()
}

// renew subscribes again when so many permits are lost that the broker may soon send nothing: a new consumer has all of them. The
// old one sends its acknowledgements before it goes. What else it had in hand comes again, as after a lost connection.
func (r *receiver) renew(ctx context.Context) error {
	r.mu.Lock()
	old := r.consumer
	if r.leaked < max(r.options.ReceiverQueueSize/2, 1) || r.isClosed() {
		r.mu.Unlock()
		return nil
	}
	r.renewing = true
	r.mu.Unlock()
	old.Close()
	r.forget()

	consumer, err := r.subscribeAgain(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renewing = false
	switch {
	case err == nil && r.isClosed():
		consumer.Close()
		return messaging.ErrClosed
	case err == nil:
		r.consumer = consumer
		return nil
	case r.isClosed():
		return messaging.ErrClosed
	case ctx.Err() != nil:
		r.renewing = true // and the next call goes on with it
		r.leaked = r.options.ReceiverQueueSize
		return ctx.Err()
	default:
		return fmt.Errorf("pulsar: receive: after an encrypted batch subscription %q of topic %q could not be renewed, subscribe again: %w",
			r.subscription.Name, r.subscription.Topic, err)
	}
}

// forget has the receiver begin anew, before the new consumer calls it.
func (r *receiver) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.turns {
		t.ask = nil
	}
	r.turns, r.again, r.leaked = map[int32]*turn{}, nil, 0
	r.silence, r.left = silence{since: time.Now(), inHand: map[int32]int{}}, left{}
}

func (r *receiver) subscribeAgain(ctx context.Context) (pulsarclient.Consumer, error) {
	if err := r.broker.enter("receive"); err != nil {
		return nil, err
	}
	defer r.broker.calls.Done()
	ctx, cancel := context.WithTimeout(ctx, r.broker.cfg.ConnectTimeout)
	defer cancel()
	defer context.AfterFunc(r.broker.open, cancel)()
	return r.subscribe(ctx)
}
