package fetch

import (
	"slices"
	"time"
)

// spell is the time during which this process fetches the messages of a partition: from the reset of the consumer until the connection is lost,
// another process is chosen, or this one gives the partition up. The receiver's mutex guards it.
type spell struct {
	partition *partition
	until     time.Time            // when the server may choose another process; zero for a shared subscription, where any number may fetch
	over      bool                 // messages that wait are not handed out any more
	waiting   int                  // messages in the queue
	held      int                  // messages that the callers of Receive have
	left      int                  // messages that they have left at the broker
	open      map[uint64]*delivery // unsettled messages, by their place in the stream
	lastAck   string
}

// isOurs reports whether messages may be handed out: no other process can have the partition, and none waits for it.
func (s *spell) isOurs() bool {
	return !s.over && s.partition.wanted && (s.until.IsZero() || time.Now().Before(s.until))
}

// settle counts a message as settled.
func (s *spell) settle(d *delivery) {
	d.held = false
	s.held--
	if s.open[d.md.Sequence.Stream] == d {
		delete(s.open, d.md.Sequence.Stream)
	}
	s.partition.wake()
}

// drop takes the messages that wait out of the queue, because they come again to the next process.
func (r *Receiver) drop(s *spell) {
	s.over = true
	r.queue = slices.DeleteFunc(r.queue, func(d *delivery) bool { return d.spell == s })
	s.waiting = 0
}
