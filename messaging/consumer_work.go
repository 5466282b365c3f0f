package messaging

import (
	"errors"
	"fmt"
	"time"
)

// earlyTries is how many pauses of a message end early when the queue is full.
const earlyTries = 3

// errStopped means that a message was not tried because the consumer stops.
var errStopped = errors.New("messaging: the message was not tried, because the consumer is stopping")

// OrderingKey is the value under which handlers keep the order: that of [event.Envelope.OrderingKey], an explicit key or the
// aggregate's, else one made of tenant and routing key. "" means that the message has no order.
func (m *Message) OrderingKey() string {
	if key := m.Envelope.OrderingKey(); key != "" || m.RoutingKey == "" {
		return key
	}
	// As if the routing key had been set as the ordering key: so do programs that know nothing of ordering keys.
	keyed := m.Envelope
	keyed.Delivery.OrderingKey = m.RoutingKey
	return keyed.OrderingKey()
}

// accept gives m to a batcher, or puts it behind its key, and gives the key a worker if it has none. The queue bounds how many there
// are.
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

// isBehind puts a message behind its key if that is busy. The caller holds the mutex.
func (c *Consumer) isBehind(k keyed) bool {
	waiting, busy := c.keys[k.key]
	if busy {
		c.keys[k.key] = append(waiting, k.m)
		c.blocked.join(k.key)
	}
	return busy
}

// worker works on a key, and then on others. A new goroutine for each would be simpler, but growing its stack for the depth
// of a handler with a database was a sixth of the CPU time that a message takes in this process.
func (c *Consumer) worker(k keyed) {
	for {
		c.work(k, 1)
		select {
		case c.resting <- struct{}{}:
		default:
			return // there are enough of them
		}
		select {
		case k = <-c.idle:
			<-c.resting
		case <-c.stopped:
			return
		}
	}
}

// work settles k, for which the next try is the n-th, and what came behind it. When the consumer stops before a message
// is settled, what is behind it stays where it is: closing the receiver hands it back.
func (c *Consumer) work(k keyed, n int) {
	for m := k.m; m != nil && c.settle(k.key, m, n); n = 1 {
		m = c.next(k.key)
		<-c.queue
	}
}

// next counts one message of key as settled and returns the one behind it.
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
	waiting[0] = nil // the slice would keep it
	c.keys[key] = waiting[1:]
	return next
}

// progress counts settled messages. The caller holds the mutex.
func (c *Consumer) progress(settled int) {
	if settled > 0 {
		c.unsettled -= settled
		c.lastProgress = time.Now()
	}
}

// settle tries m, for the n-th time at first, until its handler returns nil, and acknowledges it. What is to be left at the broker
// counts as settled and is not acknowledged. false: the consumer stops, m is not settled.
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
		// Whatever is wrong with this receiver, it would keep the message for ever: neither settled nor given to another.
		c.stop(fmt.Errorf("ack: %w", err))
		return false
	}
	return true
}

// try runs the handler once, as soon as there is a slot for it.
func (c *Consumer) try(key string, m *Message, n int) error {
	if !c.enter() {
		return errStopped
	}
	defer c.leave()
	// A copy, so that a handler that still holds the message of an earlier try cannot disturb this one.
	attempt := *m
	attempt.Attempt = max(m.Attempt, 1) + n - 1
	attempt.consumer, attempt.lineup = c, key
	return c.telemetry.handle(c.handling, c.handler, &attempt)
}

// enter waits for a slot. false: the consumer stops.
func (c *Consumer) enter() bool {
	select {
	case c.slots <- struct{}{}:
	case <-c.stopped:
		return false
	}
	// The slot may have come free because everybody is going home.
	select {
	case <-c.stopped:
		c.leave()
		return false
	default:
		return true
	}
}

func (c *Consumer) leave() { <-c.slots }

// pause waits before m is tried again, unless that would keep too many others out. The key is held and the slot is not.
// false: the consumer stops.
func (c *Consumer) pause(key string, m *Message, n int, err error) bool {
	d := c.cfg.Retry.Pause(n)
	if after, ok := RetryDelay(err); ok && after > 0 {
		d = after
	}
	if IsPermanent(err) {
		// Nobody between here and the handler made a dead letter of it, and dropping it is not for the consumer to decide.
		d = c.cfg.Retry.MaxDelay
	}
	c.telemetry.failed(c.handling, m, n, d, err)
	var queueFull chan struct{} // never, for a message that waits for another process
	if asked, _ := markOf[later](err); !asked.waits {
		c.mu.Lock()
		pause := c.blocked.enter(key, len(c.keys[key]))
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.blocked.leave(pause)
		}()
		if n <= earlyTries { // later on nobody parks it: it would be tried without a pause for ever
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
