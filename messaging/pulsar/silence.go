package pulsar

import (
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/messaging"
)

// How long a receiver gets no message before it asks for redelivery, at first and at most.
const (
	firstSilence   = 5 * time.Second
	longestSilence = time.Minute
)

// silence makes sure that a Failover subscription flows.
//
// A broker that moves a partition to another consumer may forget to read on, for the reason given at turn. Messages that the first consumer
// did not settle then wait until the next message is published to the partition (seen with 4.0.8 in 1 of 24 moves under load). For such a
// move the receiver asks some seconds after the broker's notification, see askLater. For all other cases it asks when no message has come
// for a while: it requests redelivery of the messages that are not acknowledged, for the partitions of which it has none in hand. This
// makes the broker read. If there is nothing to read it costs one small command, and the broker ignores it from a consumer that does not
// own the partition.
type silence struct {
	since  time.Time     // time of the last message or the last request
	asked  int           // number of requests since the last message
	asking bool          // a request is under way
	inHand map[int32]int // messages by partition that were received, and are neither settled nor left
}

// left returns how long the silence may still last.
func (s *silence) left() time.Duration {
	return time.Until(s.since.Add(backoff.Exponential(s.asked+1, firstSilence, longestSilence)))
}

// broken ends the silence: a message has come.
func (s *silence) broken() { s.since, s.asked = time.Now(), 0 }

// patience returns a timer for the present silence, nil if it may last.
func (r *receiver) patience() *time.Timer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.IsPaused() {
		return nil // a paused receiver gets no messages
	}
	return time.NewTimer(max(r.silence.left(), 0))
}

// ask requests redelivery of the messages that are not acknowledged. It does not wait for the answer. dropped says that messages had
// arrived before the silence: the client's queue is empty, so they were dropped, and the receiver subscribes again.
func (r *receiver) ask(dropped bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silence.since = time.Now()
	r.silence.asked++
	if r.silence.asking || r.renewing || r.IsClosed() {
		return
	}
	if dropped && r.links.state().Away == 0 {
		r.lost()
		return
	}
	if r.subscription.Type != messaging.Failover {
		return
	}
	r.silence.asking = true
	r.broker.background.Go(func() {
		partitions, err := r.broker.client.TopicPartitions(r.broker.keeper.FullName(r.subscription.Topic))
		if err == nil {
			r.links.expect(len(partitions))
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.silence.asking = false
		if err != nil || r.renewing || r.IsClosed() {
			return
		}
		for p := range int32(len(partitions)) { //nolint:gosec // few
			if r.silence.inHand[p] == 0 && (r.silence.asked >= leftPatience || r.left.in(p) == 0) {
				r.consumer.NackID(anyOf(p))
			}
		}
	})
}

// anyOf returns an id in a partition. With Failover the broker redelivers all messages of the partition, whichever id is given.
func anyOf(partition int32) pulsarclient.MessageID {
	return pulsarclient.NewMessageID(0, 0, -1, partition)
}

// watch makes a receiver an interceptor of Pulsar's client: it is called when a message arrives and when the client gives up.
type watch struct{ receiver *receiver }

// OnConsumerClose is called once; err is nil if we closed it.
func (w watch) OnConsumerClose(_ pulsarclient.Consumer, err error) {
	if err != nil {
		w.receiver.dead <- err
	}
}

// BeforeConsume is called when a message has come from the broker.
func (w watch) BeforeConsume(m pulsarclient.ConsumerMessage) {
	w.receiver.turns.arrived(m)
	w.receiver.dropped.Arrive(m)
}

// OnAcknowledge does nothing.
func (watch) OnAcknowledge(pulsarclient.Consumer, pulsarclient.MessageID) {}

// OnNegativeAcksSend does nothing.
func (watch) OnNegativeAcksSend(pulsarclient.Consumer, []pulsarclient.MessageID) {}

var _ pulsarclient.ConsumerCloseInterceptor = watch{}
