package messaging

import (
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/internal/backoff"
)

// errStopped means that a message was not tried because the consumer stops.
var errStopped = errors.New("messaging: the consumer stops")

// OrderingKey is the value under which handlers keep the order: the envelope's own, of its aggregate, else one made of
// tenant and routing key. "" means that the message has no order.
func (m *Message) OrderingKey() string {
	if key := m.Envelope.OrderingKey(); key != "" || m.RoutingKey == "" {
		return key
	}
	// The same value that the producer has if its explicit ordering key became the routing key.
	keyed := m.Envelope
	keyed.Delivery.OrderingKey = m.RoutingKey
	return keyed.OrderingKey()
}

// accept puts m behind its key, and gives the key a worker if it has none. A worker is a goroutine that lives as long
// as its key has messages; the queue bounds how many there are.
func (c *Consumer) accept(s *shift, m *Message) {
	key := ""
	if !c.cfg.Unordered {
		key = m.OrderingKey()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unsettled == 0 {
		c.lastProgress = time.Now()
	}
	c.unsettled++
	if key != "" {
		waiting, busy := c.keys[key]
		if busy {
			c.keys[key] = append(waiting, m)
			return
		}
		c.keys[key] = nil
	}
	c.working.Go(func() { c.work(s, key, m) })
}

// work settles m and what came behind it. When the consumer stops before m is settled, what is behind m stays where it
// is: closing the receiver hands it back.
func (c *Consumer) work(s *shift, key string, m *Message) {
	for m != nil && c.settle(s, m) {
		m = c.next(key)
		<-c.queue
	}
}

// next counts one message of key as settled and returns the one behind it.
func (c *Consumer) next(key string) *Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsettled--
	c.lastProgress = time.Now()
	waiting := c.keys[key]
	if len(waiting) == 0 {
		delete(c.keys, key)
		return nil
	}
	c.keys[key] = waiting[1:]
	return waiting[0]
}

// settle tries m until its handler returns nil, and acknowledges it. false: the consumer stops, m is not settled.
func (c *Consumer) settle(s *shift, m *Message) bool {
	for n := 1; ; n++ {
		err := c.try(s, m, n)
		if err == nil {
			break
		}
		if errors.Is(err, errStopped) || !c.pause(s, m, n, err) {
			return false
		}
	}
	if err := c.receiver.Ack(s.handling, m); err != nil {
		// Whatever is wrong with this receiver, it would keep the message for ever: neither settled nor given to another.
		s.stop(fmt.Errorf("ack: %w", err))
		return false
	}
	return true
}

// try runs the handler once, as soon as there is a slot for it.
func (c *Consumer) try(s *shift, m *Message, n int) error {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-s.stopped:
		return errStopped
	}
	// The slot may have come free because everybody is going home.
	select {
	case <-s.stopped:
		return errStopped
	default:
	}
	// A copy, so that a handler that still holds the message of an earlier try cannot disturb this one.
	attempt := *m
	attempt.Attempt = max(m.Attempt, 1) + n - 1
	return c.telemetry.handle(s.handling, c.handler, &attempt)
}

// pause waits before m is tried again. The key is held and the slot is not. false: the consumer stops.
func (c *Consumer) pause(s *shift, m *Message, n int, err error) bool {
	d := backoff.Jitter(backoff.Exponential(n, c.cfg.RetryDelay, c.cfg.RetryMaxDelay))
	if after, ok := RetryDelay(err); ok && after > 0 {
		d = after
	}
	if IsPermanent(err) {
		// Nobody between here and the handler made a dead letter of it, and dropping it is not for the consumer to decide.
		d = c.cfg.RetryMaxDelay
	}
	c.telemetry.failed(s.handling, m, n, d, err)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.stopped:
		return false
	}
}
