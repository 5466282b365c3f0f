package pulsar

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// What is known of a message that has no receipt. Neither leaves this file.
var (
	errWaiting = errors.New("pulsar: not handed over")
	errFlying  = errors.New("pulsar: handed over, no receipt")
)

// flight is the way of one call's messages through one producer.
//
// It keeps its own account, because the client's is not enough: a callback may never come, a deadline does not recall a
// message, and a failed message does not hold back the later ones of its key. So whatever has no receipt when the flight
// ends is unknown and its producer is not used any more, and [flight.land] reports nothing of a key as sent behind
// something that was not.
type flight struct {
	producer *producer
	topic    *topic
	limit    int
	msgs     []event.Envelope
	indexes  []int
	careful  bool

	stop context.CancelCauseFunc // ends the waiting when there is nothing good to wait for

	mu     sync.Mutex
	errs   []error // by position in indexes
	flying int
	idle   chan struct{} // a token: nothing is flying
}

func newFlight(p *producer, t *topic, limit int, msgs []event.Envelope, indexes []int) *flight {
	f := &flight{
		producer: p, topic: t, limit: limit, msgs: msgs, indexes: indexes, careful: t.careful.Load(),
		errs: make([]error, len(indexes)), idle: make(chan struct{}, 1),
	}
	for n := range f.errs {
		f.errs[n] = errWaiting
	}
	return f
}

// run hands the messages over and waits for their receipts. false: the producer must not be used again.
func (f *flight) run(ctx context.Context) bool {
	ctx, f.stop = context.WithCancelCause(ctx)
	defer f.stop(nil)
	stuck := map[string]bool{}
	for n, i := range f.indexes {
		env := &f.msgs[i]
		if stuck[env.RoutingKey] {
			continue
		}
		if err := f.send(ctx, n, env); err != nil {
			stuck[env.RoutingKey] = env.RoutingKey != ""
		}
		if ctx.Err() != nil {
			return false
		}
	}
	if f.careful {
		f.topic.careful.Store(false)
	}
	return f.flush(ctx) == nil && f.wait(ctx) == nil
}

// send hands one message over. The error, if there is one already, is also in the account.
func (f *flight) send(ctx context.Context, n int, env *event.Envelope) error {
	m := encode(env)
	if size := sizeOnWire(m); size > f.limit {
		err := messaging.Permanent(fmt.Errorf("pulsar: the message takes up to %d bytes, at most %d are allowed (Config.MaxMessageBytes)", size, f.limit))
		f.mu.Lock()
		f.errs[n] = err
		f.mu.Unlock()
		return err
	}
	for {
		err := f.handOver(ctx, n, m)
		if err == nil || !isNoRoom(err) {
			break
		}
		// Nothing of this call is sent meanwhile, so nothing of the key can overtake.
		if f.makeRoom(ctx) != nil {
			return f.reset(n)
		}
	}
	if f.careful {
		if f.flush(ctx) != nil || f.wait(ctx) != nil {
			f.stop(errors.New("pulsar: a message that was sent alone got no receipt"))
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.errs[n]; !errors.Is(err, errFlying) {
		return err
	}
	return nil
}

// handOver calls SendAsync. The callback may run within the call, on the client's goroutine, or never; what it may do
// there is to write into the account. The error is that of a callback that ran already.
func (f *flight) handOver(ctx context.Context, n int, m *pulsarclient.ProducerMessage) error {
	f.mu.Lock()
	f.errs[n] = errFlying
	f.flying++
	f.mu.Unlock()
	func() {
		defer func() {
			// The client closes its channels under us when the broker closes the producer.
			if r := recover(); r != nil {
				f.stop(fmt.Errorf("pulsar: the client panicked: %v", r))
			}
		}()
		f.producer.SendAsync(ctx, m, func(id pulsarclient.MessageID, _ *pulsarclient.ProducerMessage, err error) { f.receipt(n, id, err) })
	}()
	f.mu.Lock()
	defer f.mu.Unlock()
	if errors.Is(f.errs[n], errFlying) {
		return nil
	}
	return f.errs[n]
}

func (f *flight) receipt(n int, id pulsarclient.MessageID, err error) {
	if err == nil && !isPlace(id) {
		err = errNotStored
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !errors.Is(f.errs[n], errFlying) {
		return
	}
	f.flying--
	if f.flying == 0 {
		select {
		case f.idle <- struct{}{}:
		default:
		}
	}
	if err == nil || isNoRoom(err) {
		f.errs[n] = err
		return
	}
	f.errs[n] = classify(f.topic.name, err, f.careful || !f.producer.batched)
	if isBatchTooLarge(err) && f.producer.batched {
		f.topic.careful.Store(true)
	}
	if !isBatchTooLarge(err) && !messaging.IsPermanent(f.errs[n]) {
		// The producer is in trouble, and later messages of the key may still get through: stop it before they do.
		f.stop(err)
	}
}

// reset takes back that a message was handed over: the client did not take it.
func (f *flight) reset(n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errs[n] = errWaiting
	return errWaiting
}

// makeRoom waits until it makes sense to try again.
func (f *flight) makeRoom(ctx context.Context) error {
	if err := f.flush(ctx); err != nil {
		return err
	}
	// What the client has lost keeps its place in the queue, so there may be no room for long.
	timer := time.NewTimer(5 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// flush sends what the client collects, and waits for it. An error means that the producer is broken, or ctx done.
func (f *flight) flush(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("pulsar: the client panicked: %v", r)
		}
	}()
	return f.producer.FlushWithCtx(ctx)
}

// wait returns nil when nothing is flying any more.
func (f *flight) wait(ctx context.Context) error {
	for {
		f.mu.Lock()
		flying := f.flying
		f.mu.Unlock()
		if flying == 0 {
			return nil
		}
		select {
		case <-f.idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// land returns the errors by index; what comes later is not heard. Of each key, the messages without an error are a prefix.
func (f *flight) land() map[int]error {
	f.mu.Lock()
	defer f.mu.Unlock()
	failed := map[int]error{}
	behind := map[string]bool{}
	for n, i := range f.indexes {
		key := f.msgs[i].RoutingKey
		err := f.errs[n]
		switch {
		case errors.Is(err, errFlying):
			err = fmt.Errorf("%w: pulsar: topic %s", messaging.ErrUnknown, f.topic.name)
		case errors.Is(err, errWaiting) && behind[key]:
			err = messaging.ErrBehind
		case errors.Is(err, errWaiting):
			err = fmt.Errorf("%w: not handed over: pulsar: topic %s", messaging.ErrUnknown, f.topic.name)
		case err == nil && behind[key]:
			// Stored, but an earlier one of the key was not. Sent again behind that one, it is a duplicate.
			err = fmt.Errorf("%w: pulsar: stored before an earlier message of its key", messaging.ErrUnknown)
		}
		if err != nil {
			failed[i] = err
			behind[key] = key != ""
		}
	}
	return failed
}
