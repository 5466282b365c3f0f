package messaging

import (
	"errors"
	"fmt"
	"time"
)

// earlyTries is how many pauses of one message may end early because the queue is full.
const earlyTries = 3

// errStopped is the result of a try that did not take place because the consumer stops.
var errStopped = errors.New("messaging: the message was not tried, because the consumer is stopping")

// OrderingKey returns the key within which handlers keep the order: the explicit ordering key, else the aggregate, see [event.Envelope.OrderingKey],
// else tenant and routing key. "" means that the message has no order.
func (m *Message) OrderingKey() string {
	if key := m.Envelope.OrderingKey(); key != "" || m.RoutingKey == "" {
		return key
	}
	// Programs without ordering keys set only the routing key. It is used as if it were the ordering key.
	keyed := m.Envelope
	keyed.Delivery.OrderingKey = m.RoutingKey
	return keyed.OrderingKey()
}

// accept gives a received message to a batcher, or puts it in line behind its key. A key that had no message yet gets a worker. The queue bounds the
// number of messages, and so of workers.
func (c *Consumer) accept(m *Message) {
	k := keyed{m: m}
	if !c.cfg.Unordered {
		k.key = m.OrderingKey()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unsettled == 0 {
		c.lastProgress = time.Now()
	}
	c.unsettled++
	if c.batchers != nil {
		c.batchers.put(k)
		return
	}
	if c.isBehind(k) {
		return
	}
	if k.key != "" {
		c.keys[k.key] = nil
	}
	select {
	case c.idle <- k:
	default:
		c.working.Go(func() { c.worker(k) })
	}
}

// isBehind puts a message in line behind its key if a worker has that key, and reports whether it did. The caller holds the mutex.
func (c *Consumer) isBehind(k keyed) bool {
	waiting, busy := c.keys[k.key]
	if busy {
		c.keys[k.key] = append(waiting, k.m)
		c.blocked.join(k.key)
	}
	return busy
}

// worker settles the messages of one key, and then takes other keys. A goroutine per key would be simpler, but growing its stack for the depth of a
// handler with database calls took a sixth of the CPU time of a message.
func (c *Consumer) worker(k keyed) {
	for {
		c.work(k, 1)
		select {
		case c.resting <- struct{}{}:
		default:
			return // enough workers rest already
		}
		select {
		case k = <-c.idle:
			<-c.resting
		case <-c.stopped:
			return
		}
	}
}

// work settles k, whose next try is number n, and then the messages behind it. When the consumer stops early, the remaining messages stay in line,
// and go back to the broker when the receiver is closed.
func (c *Consumer) work(k keyed, n int) {
	for m := k.m; m != nil && c.settle(k.key, m, n); n = 1 {
		m = c.next(k.key)
		<-c.queue
	}
}

// next counts the present message of key as settled, and returns the message behind it; nil if there is none.
func (c *Consumer) next(key string) *Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.progress(1)
	waiting := c.keys[key]
	if len(waiting) == 0 {
		delete(c.keys, key)
		return nil
	}
	next := waiting[0]
	waiting[0] = nil // else the slice's array would keep the message in memory
	c.keys[key] = waiting[1:]
	return next
}

// progress counts settled messages and notes the time. The caller holds the mutex.
func (c *Consumer) progress(settled int) {
	if settled > 0 {
		c.unsettled -= settled
		c.lastProgress = time.Now()
	}
}

// settle tries m until its handler returns nil, and acknowledges it. n is the number of the first try. A message that is to be left at the broker
// counts as settled, without an acknowledgement. settle returns false if the consumer stops before m is settled.
func (c *Consumer) settle(key string, m *Message, n int) bool {
	for ; ; n++ {
		err := c.try(key, m, n)
		if err == nil {
			break
		}
		if IsLeft(err) {
			c.telemetry.left(c.handling, m, err)
			if r, ok := c.receiver.(BacklogReceiver); ok {
				r.Leave(m)
			}
			return true
		}
		if errors.Is(err, errStopped) || !c.pause(key, m, n, err) {
			return false
		}
	}
	if err := c.receiver.Ack(c.handling, m); err != nil {
		// Without the acknowledgement this receiver would hold the message for ever. Ending the consumer closes the receiver, and the
		// broker delivers the message again.
		c.stop(fmt.Errorf("ack: %w", err))
		return false
	}
	return true
}

// try waits for a free slot and runs the handler once.
func (c *Consumer) try(key string, m *Message, n int) error {
	if !c.enter() {
		return errStopped
	}
	defer c.leave()
	// Each try gets a copy: a handler that still uses the message of an earlier try cannot change this one.
	attempt := *m
	attempt.Attempt = max(m.Attempt, 1) + n - 1
	attempt.consumer, attempt.lineup = c, key
	return c.telemetry.handle(c.handling, c.handler, &attempt)
}

// enter waits while the consumer is paused, and for a slot. It returns false if the consumer stops.
func (c *Consumer) enter() bool {
	for {
		if ends := c.pauseEnds(); ends != nil {
			select {
			case <-ends:
			case <-c.stopped:
				return false
			}
		}
		select {
		case c.slots <- struct{}{}:
		case <-c.stopped:
			return false
		}
		// Handlers that end because the consumer stops free their slots, and select may choose either case: check again.
		select {
		case <-c.stopped:
			c.leave()
			return false
		default:
		}
		// A pause may have begun while this message waited for the slot. The message starts only if no pause has begun.
		if c.pauseEnds() == nil {
			return true
		}
		c.leave()
	}
}

func (c *Consumer) leave() { <-c.slots }

// pause waits before the next try of m. It holds the key, so that later messages wait, and no slot. It ends early when too many messages are blocked,
// and returns false if the consumer stops.
func (c *Consumer) pause(key string, m *Message, n int, err error) bool {
	d := c.cfg.Retry.Pause(n)
	if after, ok := RetryDelay(err); ok && after > 0 {
		d = after
	}
	if IsPermanent(err) {
		// A permanent error becomes a dead letter in package inbox. Without an inbox the consumer may not drop the message, so it is tried again, as
		// rarely as the policy allows.
		d = c.cfg.Retry.MaxDelay
	}
	c.telemetry.failed(c.handling, m, n, d, err)
	var queueFull chan struct{} // nil, never ready, for a message that waits for another process
	if asked, _ := markOf[later](err); !asked.waits {
		c.mu.Lock()
		pause := c.blocked.enter(key, len(c.keys[key]))
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.blocked.leave(pause)
		}()
		if n <= earlyTries { // a handler that did not keep the message elsewhere by then never will: without this limit it would be tried without any pause
			queueFull = pause.end
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-queueFull:
		return true
	case <-c.stopped:
		return false
	}
}
