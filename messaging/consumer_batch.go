package messaging

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
)

// batchers hand received messages to a [BatchHandler] in batches. Each key belongs to one batcher, and a batcher works on one batch at a time, so no
// two batches share a key. A message that fails in a batch is handled alone afterwards, and its key is held until it is settled. Later messages of
// the key wait behind it, and the batcher goes on with other keys.
type batchers struct {
	handler BatchHandler
	seed    maphash.Seed
	in      []chan keyed
	any     chan keyed // messages without a key, for any batcher
}

// keyed is a message with its ordering key, "" if it has no order.
type keyed struct {
	key string
	m   *Message
}

// newBatchers returns nil if the handler or the configuration asks for single messages.
func newBatchers(h Handler, cfg *ConsumerConfig) *batchers {
	batches, ok := h.(BatchHandler)
	if !ok || cfg.BatchSize < 2 {
		return nil
	}
	queue := max(cfg.Queue, 1) // a batcher's channel is never full, because the process holds no more messages than this
	l := &batchers{handler: batches, seed: maphash.MakeSeed(), in: make([]chan keyed, max(cfg.Concurrency, 1)), any: make(chan keyed, queue)}
	for i := range l.in {
		l.in[i] = make(chan keyed, queue)
	}
	return l
}

// put gives k to the batcher of its key. Any free batcher takes a message without a key.
func (b *batchers) put(k keyed) {
	if k.key == "" {
		b.any <- k
		return
	}
	b.in[maphash.String(b.seed, k.key)%uint64(len(b.in))] <- k
}

// fill adds waiting messages until the batch is full or none waits. It does not wait for more.
func (b *batchers) fill(batch []keyed, in <-chan keyed) []keyed {
	for len(batch) < cap(batch) {
		select {
		case k := <-in:
			batch = append(batch, k)
		case k := <-b.any:
			batch = append(batch, k)
		default:
			return batch
		}
	}
	return batch
}

// runBatcher collects and handles one batch after the other until the consumer stops.
func (c *Consumer) runBatcher(in <-chan keyed) {
	room := make([]keyed, c.cfg.BatchSize)
	for {
		var first keyed
		select {
		case first = <-in:
		case first = <-c.batchers.any:
		case <-c.stopped:
			return
		}
		if !c.tryBatch(in, append(room[:0], first)) {
			return
		}
		clear(room) // else the batcher would keep these messages in memory until its next batch
	}
}

// tryBatch waits for a free slot, completes the batch with the messages that wait by then, and calls the handler. It returns false if the
// consumer stops.
func (c *Consumer) tryBatch(in <-chan keyed, batch []keyed) bool {
	if !c.enter() {
		return false
	}
	batch = c.withoutHeld(c.batchers.fill(batch, in))
	if len(batch) == 0 {
		c.leave()
		return true
	}
	failed := c.telemetry.handleBatch(c.handling, c.batchers.handler, batch)
	c.leave()
	return c.settleBatch(batch, failed)
}

// withoutHeld moves messages whose key is held into the line behind that key, and returns the others.
func (c *Consumer) withoutHeld(batch []keyed) []keyed {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.keys) == 0 {
		return batch
	}
	return slices.DeleteFunc(batch, c.isBehind)
}

// copies returns the messages for one call of the handler. They are copies, so that a later try gets the message as it was received,
// whatever the handler changes.
func copies(batch []keyed) []*Message {
	tries, msgs := make([]Message, len(batch)), make([]*Message, len(batch))
	for i, k := range batch {
		tries[i] = *k.m
		tries[i].Attempt = max(k.m.Attempt, 1)
		msgs[i] = &tries[i]
	}
	return msgs
}

// failures returns the error of each message that is not settled, by index; nil if all are settled.
func failures(batch []keyed, err error) map[int]error {
	if err == nil {
		return nil
	}
	partly, partial := errors.AsType[*BatchError](err)
	failed, held := map[int]error{}, map[string]bool{}
	for i, k := range batch {
		cause, named := err, true
		if partial {
			cause, named = partly.Failed[i]
		}
		switch {
		case named:
			failed[i] = cmp.Or(cause, err)
		case held[k.key]:
			failed[i] = ErrBehind
		default:
			continue
		}
		held[k.key] = k.key != ""
	}
	return failed
}

// settleBatch acknowledges the settled messages and starts a worker for each key with a failed message. It returns false if the receiver failed.
func (c *Consumer) settleBatch(batch []keyed, failed map[int]error) bool {
	for i, k := range batch {
		if _, ok := failed[i]; ok {
			continue
		}
		if err := c.receiver.Ack(c.handling, k.m); err != nil {
			c.stop(fmt.Errorf("ack: %w", err))
			return false
		}
	}
	settled := len(batch) - len(failed)
	c.mu.Lock()
	c.progress(settled)
	for i, k := range batch {
		cause, ok := failed[i]
		if !ok {
			continue
		}
		if c.isBehind(k) {
			continue
		}
		if k.key != "" {
			c.keys[k.key] = nil
		}
		c.working.Go(func() { c.workAgain(k, cause) })
	}
	c.mu.Unlock()
	for range settled {
		<-c.queue
	}
	return true
}

// workAgain settles a message that failed in a batch, and then the messages behind it in its key.
func (c *Consumer) workAgain(k keyed, cause error) {
	// Another message may have made the batch fail, so this one pauses only if the handler asked for it.
	if _, asked := RetryDelay(cause); asked && !c.pause(k.key, k.m, 1, cause) {
		return
	}
	c.work(k, 2)
}
