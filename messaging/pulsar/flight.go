package pulsar

import (
	"context"
	"fmt"
	"sync"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/wire"
	"github.com/oncebox/oncebox/messaging/receipts"
)

// flight sends the messages of one call through one producer.
//
// The account of receipts is that of package receipts, because the client's is not enough: a callback may never come, a deadline does not
// recall a message, and a failed message does not hold back later messages of its key. After a flight with a message without a receipt the
// producer is not used again.
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
	careful  bool // each message is sent by itself, to find which message is too large

	next *pulsarclient.ProducerMessage // the message that is sent next, and its size
	size int
	sent []*pulsarclient.ProducerMessage
}

func newFlight(p *producer, t *topic, limit int, msgs []event.Envelope) *flight {
	return &flight{producer: p, topic: t, limit: limit, msgs: msgs, careful: t.careful.Load()}
}

// run sends the messages at these indexes and returns the errors by index. It returns false if the producer must not be used again.
func (f *flight) run(ctx context.Context, indexes []int) (failed map[int]error, sound bool) {
	f.sent = make([]*pulsarclient.ProducerMessage, 0, len(indexes))
	window := receipts.Window{Holds: f.holds, Flush: f.flush, Breaks: isFault}
	if f.careful {
		window.InFlight = 1
	}
	failed, sound = window.Publish(ctx, f.msgs, indexes, f.send)
	if !sound {
		return failed, false
	}
	if f.careful {
		f.topic.careful.Store(false) // the large message was found and refused, so the next flight may batch again
	}
	if len(failed) == 0 {
		f.takeBack()
	}
	return failed, true
}

// isFault reports whether a receipt shows a fault of the producer: later messages of the key might still be stored.
func isFault(err error) bool { return !isBatchTooLarge(err) && !messaging.IsPermanent(err) }

// holds makes the message with this index, and reports whether it may be refused alone.
func (f *flight) holds(i int) bool {
	f.next = wire.Fill(f.producer.message(), &f.msgs[i])
	f.size = wire.Size(f.next)
	f.sent = append(f.sent, f.next)
	return f.size > batchBytes(f.limit)
}

// send hands over the message that holds has made.
func (f *flight) send(ctx context.Context, i int, receipt func(error)) error {
	if f.size > f.limit {
		receipt(messaging.Permanent(fmt.Errorf("pulsar: the message takes up to %d bytes, at most %d are allowed "+
			"(Config.MaxMessageBytes, ONCEBOX_PULSAR_MAX_MESSAGE_BYTES)", f.size, f.limit)))
		return nil
	}
	// alone: a refusal can only mean this message. Otherwise it may mean another message of the same batch.
	alone := f.careful || !f.producer.batched || len(f.msgs[i].Payload) > batchBytes(f.limit)
	for {
		full, err := f.handOver(ctx, f.next, func(id pulsarclient.MessageID, err error) { f.receipt(id, err, alone, receipt) })
		if err != nil || !full {
			return err
		}
		// No other message of this call is sent meanwhile, so none can overtake this one.
		if err := f.makeRoom(ctx); err != nil {
			receipt(notHandedOver(ctx))
			return err
		}
	}
}

// handOver calls SendAsync. The callback may run within the call, later on the client's goroutine, or never. full reports that the client has
// no room for the message and did not take it.
func (f *flight) handOver(ctx context.Context, m *pulsarclient.ProducerMessage, done func(pulsarclient.MessageID, error)) (full bool, err error) {
	defer func() {
		// When the broker closes the producer, the client closes the channels that SendAsync uses, and the call panics.
		if r := recover(); r != nil {
			err = fmt.Errorf("pulsar: the client panicked: %v", r)
		}
	}()
	var mu sync.Mutex
	returned := false
	f.producer.SendAsync(ctx, m, func(id pulsarclient.MessageID, _ *pulsarclient.ProducerMessage, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil && isNoRoom(err) && !returned {
			full = true
			return
		}
		done(id, err)
	})
	mu.Lock()
	defer mu.Unlock()
	returned = true
	return full, nil
}

// receipt passes an answer of the client on, as an error of one of the classes of package messaging.
func (f *flight) receipt(id pulsarclient.MessageID, err error, alone bool, pass func(error)) {
	if err == nil && !isPlace(id) {
		err = errNotStored
	}
	if err != nil && isBatchTooLarge(err) && !alone {
		f.topic.careful.Store(true)
	}
	pass(classify(f.topic.name, err, alone))
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

// takeBack gives the message structs to the producer's next flight. That is safe only if each has its receipt, after which the client does
// not touch a message. A message without a receipt may still be sent, and its failure may be reported more than once.
func (f *flight) takeBack() {
	f.producer.takeBack(f.sent)
	f.sent = nil
}
