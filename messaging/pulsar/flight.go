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
	"github.com/oncebox/oncebox/messaging/pulsar/internal/wire"
)

// The states of a message without a receipt. They are not used outside of this file.
var (
	errWaiting = errors.New("pulsar: not handed over")
	errFlying  = errors.New("pulsar: handed over, no receipt")
)

// flight sends the messages of one call through one producer.
//
// It keeps its own account of receipts, because the client's is not enough: a callback may never come, a deadline does not recall a
// message, and a failed message does not hold back later messages of its key. So a message without a receipt at the end of the flight is
// reported as unknown and its producer is not used again. [flight.land] reports no message as sent that is behind an unsent message of its
// key.
//
// No message of a key is stored behind a refused one, either. If the producer has a fault, it is closed, and later messages are refused as
// well. The one refusal that leaves the producer open is about the size of a batch, and the client finds out only after it has taken the
// next messages. A batch of several messages always fits, see [batchBytes]. So only a large message, which has a batch of its own, can be
// refused. The next message of its key is sent only after its receipt has come.
type flight struct {
	producer *producer
	topic    *topic
	limit    int
	msgs     []event.Envelope
	indexes  []int
	careful  bool
	sent     []*pulsarclient.ProducerMessage

	stop context.CancelCauseFunc // ends the wait when no receipt can come any more

	mu     sync.Mutex
	errs   []error         // the answer for each message, by its place in indexes
	stuck  map[string]bool // keys with a message that was refused
	flying int
	idle   chan struct{} // gets a token when every message has its answer
}

// newFlight marks each message as waiting, so a flight that ends early has an answer for all of them.
func newFlight(p *producer, t *topic, limit int, msgs []event.Envelope, indexes []int) *flight {
	f := &flight{
		producer: p, topic: t, limit: limit, msgs: msgs, indexes: indexes, careful: t.careful.Load(),
		sent: make([]*pulsarclient.ProducerMessage, 0, len(indexes)), errs: make([]error, len(indexes)), stuck: map[string]bool{}, idle: make(chan struct{}, 1),
	}
	for n := range f.errs {
		f.errs[n] = errWaiting
	}
	return f
}

// run hands the messages over and waits for their receipts. It returns false if the producer must not be used again.
func (f *flight) run(ctx context.Context) bool {
	ctx, f.stop = context.WithCancelCause(ctx)
	defer f.stop(nil)
	undecided := map[string]bool{} // keys whose last message is large and has no receipt yet
	for n, i := range f.indexes {
		// A large message has a batch of its own and may be refused alone. The next message of its key
		// waits for that answer.
		key := f.msgs[i].RoutingKey
		if undecided[key] {
			if f.flush(ctx) != nil || f.wait(ctx) != nil {
				return false
			}
			clear(undecided)
		}
		if f.isStuck(key) {
			continue
		}
		undecided[key] = f.send(ctx, n, &f.msgs[i]) && key != ""
		if ctx.Err() != nil {
			return false
		}
	}
	// The careful flight has sent each message by itself, so the large one was found and refused. The next
	// flight may batch again.
	if f.careful {
		f.topic.careful.Store(false)
	}
	return f.flush(ctx) == nil && f.wait(ctx) == nil
}

// send hands one message over. large reports whether the message may have a batch of its own. The result of sending is in the account.
func (f *flight) send(ctx context.Context, n int, env *event.Envelope) (large bool) {
	m := wire.Fill(f.producer.message(), env)
	f.sent = append(f.sent, m)
	size := wire.Size(m)
	if size > f.limit {
		f.refuse(n, messaging.Permanent(fmt.Errorf("pulsar: the message takes up to %d bytes, at most %d are allowed "+
			"(Config.MaxMessageBytes, ONCEBOX_PULSAR_MAX_MESSAGE_BYTES)", size, f.limit)))
		return false
	}
	for {
		err := f.handOver(ctx, n, m)
		if err == nil || !isNoRoom(err) {
			break
		}
		// No other message of this call is sent meanwhile, so none can overtake this one.
		if err := f.makeRoom(ctx); err != nil {
			f.refuse(n, errWaiting)
			return false
		}
	}
	if f.careful {
		if f.flush(ctx) != nil || f.wait(ctx) != nil {
			f.stop(errors.New("pulsar: the broker has not confirmed a message that was sent by itself, so the messages after it are not sent"))
		}
	}
	return size > batchBytes(f.limit)
}

// refuse records that a message was not sent, and holds back the later messages of its key. The caller must not hold the lock.
func (f *flight) refuse(n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused(n, err)
}

// refused is refuse for a caller that holds the lock.
func (f *flight) refused(n int, err error) {
	f.errs[n] = err
	if key := f.msgs[f.indexes[n]].RoutingKey; key != "" {
		f.stuck[key] = true
	}
}

// isStuck reports whether an earlier message of the key was refused. Without a key nothing waits.
func (f *flight) isStuck(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stuck[key]
}

// handOver calls SendAsync. The callback may run within the call, later on the client's goroutine, or never. It only writes into the
// account. handOver returns the error of a callback that has run already.
func (f *flight) handOver(ctx context.Context, n int, m *pulsarclient.ProducerMessage) error {
	f.mu.Lock()
	f.errs[n] = errFlying
	f.flying++
	f.mu.Unlock()
	func() {
		defer func() {
			// When the broker closes the producer, the client closes the channels that SendAsync uses, and the call panics.
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

// receipt writes an answer of the client into the account. Answers after the first one, and after land, are ignored.
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
	// alone: the refusal can only mean this message. Otherwise it may mean another message of the same batch.
	alone := f.careful || !f.producer.batched || len(f.msgs[f.indexes[n]].Payload) > batchBytes(f.limit)
	f.refused(n, classify(f.topic.name, err, alone))
	if isBatchTooLarge(err) && !alone {
		f.topic.careful.Store(true)
	}
	if !isBatchTooLarge(err) && !messaging.IsPermanent(f.errs[n]) {
		// The producer has a fault, and later messages of the key might still be stored: stop before that.
		f.stop(err)
	}
}

// makeRoom waits until the client may have room for another message.
func (f *flight) makeRoom(ctx context.Context) error {
	if err := f.flush(ctx); err != nil {
		return err
	}
	// Messages that the client has lost keep their place in its queue, so there may be no room for a long time.
	timer := time.NewTimer(5 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// flush sends the client's open batches, and waits for that. An error means that the producer is broken, or that ctx has ended.
func (f *flight) flush(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("pulsar: the client panicked: %v", r)
		}
	}()
	return f.producer.FlushWithCtx(ctx)
}

// wait returns nil when no message is without an answer any more.
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

// takeBack gives the message structs to the producer's next flight. That is safe only if each has its receipt, after which the client does
// not touch a message. A message without a receipt may still be sent, and its failure may be reported more than once.
func (f *flight) takeBack() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, err := range f.errs {
		if err != nil {
			return
		}
	}
	f.producer.takeBack(f.sent)
	f.sent = nil
}

// land returns the errors by index and closes the account: later answers are ignored. Of each key, the messages without an error are a
// prefix.
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
			err = fmt.Errorf("%w: pulsar: the message was not sent to topic %s", messaging.ErrUnknown, f.topic.name)
		case err == nil && behind[key]:
			// It was stored, and an earlier message of its key was not. It is sent again behind that one, as a duplicate.
			err = fmt.Errorf("%w: pulsar: it was stored before an earlier message of its key and is sent again after that "+
				"message", messaging.ErrUnknown)
		}
		if err != nil {
			failed[i] = err
			behind[key] = key != ""
		}
	}
	return failed
}
