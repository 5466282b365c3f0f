package pulsar

import (
	"maps"
	"slices"
	"sync/atomic"
)

// permitWatch finds out whether a partition has stopped because the client lost its permits. A permit lets the broker send one message.
// The client loses permits in two cases: with encrypted batches, which leak counts, and with batches that it throws away because it
// cannot parse or decompress them. It reports the second case only in its log.
type permitWatch struct {
	listening atomic.Bool      // Receive waits for a message
	heard     map[int32]uint64 // messages by partition

	// What was found at the last look.
	starved  []int32 // partitions whose messages wait without permits
	atLook   map[int32]uint64
	last     uint64
	listened bool
}

// lookForPermits has the receiver subscribe again if two looks in a row find a partition that has lost its permits:
//
//   - messages of the partition wait at the broker, and the broker has no permit to send them;
//   - the client has delivered no message of it since the last look, although nothing kept it from doing so. That is known if Receive waited
//     for a message all the time, or if it got more messages of other partitions than the client can have stored.
func (r *receiver) lookForPermits(parts []backlogStats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.permits
	waited := p.listened && r.last == p.last
	passed := r.last-p.last > uint64(max(r.options.ReceiverQueueSize, 1)*(len(parts)+1))
	before := p.starved
	p.starved, p.listened, p.last = nil, p.listening.Load(), r.last
	for _, part := range parts {
		if part.Backlog > 0 && !r.paused && !r.renewing && r.silence.inHand[part.Partition] == 0 && part.mayGetNothing(r.name) {
			p.starved = append(p.starved, part.Partition)
		}
	}
	for _, n := range p.starved {
		if (waited || passed) && slices.Contains(before, n) && p.heard[n] == p.atLook[n] {
			r.broker.log.Warn("oncebox: messages wait and the client has lost the permits to get them, subscribing again; "+
				"it threw something away before, see its log",
				"topic", r.broker.fullName(r.subscription.Topic), "subscription", r.subscription.Name, "partition", n)
			r.leaked = max(r.leaked, r.options.ReceiverQueueSize)
			r.wake()
		}
	}
	p.atLook = maps.Clone(p.heard)
}

// mayGetNothing tells whether the broker has no permit to send messages to a consumer.
func (s *backlogStats) mayGetNothing(consumer string) bool {
	for _, c := range s.Consumers {
		if c.Name == consumer {
			return c.Permits <= 0
		}
	}
	return false
}
