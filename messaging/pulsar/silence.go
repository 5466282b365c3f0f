package pulsar

import (
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/messaging"
)

// How long a receiver hears nothing before it asks, at first and at most.
const (
	firstSilence   = 5 * time.Second
	longestSilence = time.Minute
)

// silence makes sure that a Failover subscription flows.
//
// A broker that moves a partition to another consumer may lose a reading, for the reason given at turn: what the first
// consumer did not settle then lies there until somebody publishes the next message to the partition (seen with 4.0.8 in
// 1 of 24 moves under load). A receiver asks for it some seconds after the broker's word, see askLater. What else may get
// lost it asks for when it hears nothing at all: the broker is to deliver again what is not acknowledged, for the
// partitions from which the receiver has nothing in hand. That starts the reading. Where there is nothing to read it costs one
// small command, and a broker ignores it from a consumer to which the partition does not belong.
type silence struct {
	since  time.Time     // the last message, or the last time it asked
	asked  int           // how often since then
	asking bool          // at this moment
	inHand map[int32]int // how many messages of a partition were received, and are neither settled nor left
}

// left is how long the silence may last from now on.
func (s *silence) left() time.Duration {
	return time.Until(s.since.Add(backoff.Exponential(s.asked+1, firstSilence, longestSilence)))
}

func (s *silence) broken() { s.since, s.asked = time.Now(), 0 }

// patience returns a timer for the present silence, nil for types of subscription that need none.
func (r *receiver) patience() *time.Timer {
	if r.subscription.Type != messaging.Failover {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.paused {
		return nil // it is silent because it was told to
	}
	return time.NewTimer(max(r.silence.left(), 0))
}

// ask has the broker deliver again what is not acknowledged. It does not wait for it.
func (r *receiver) ask() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silence.since = time.Now()
	r.silence.asked++
	if r.silence.asking || r.renewing || r.isClosed() {
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
		if err != nil || r.renewing || r.isClosed() {
			return
		}
		for p := range int32(len(partitions)) { //nolint:gosec // few
			if r.silence.inHand[p] == 0 && (r.silence.asked >= leftPatience || r.left.in(p) == 0) {
				r.consumer.NackID(anyOf(p))
			}
		}
	})
}

// anyOf is some message of a partition. With Failover the broker redelivers all there is, whatever is asked for.
func anyOf(partition int32) pulsarclient.MessageID {
	return pulsarclient.NewMessageID(0, 0, -1, partition)
}

// watch is a receiver as the client's interceptor, which learns what arrives and when the client gives up.
type watch struct{ receiver *receiver }

// OnConsumerClose is called once; err is nil if we closed it.
func (w watch) OnConsumerClose(_ pulsarclient.Consumer, err error) {
	if err != nil {
		w.receiver.dead <- err
	}
}

// BeforeConsume is called when a message has come from the broker.
func (w watch) BeforeConsume(m pulsarclient.ConsumerMessage) { w.receiver.turns.arrived(m) }

// OnAcknowledge does nothing.
func (watch) OnAcknowledge(pulsarclient.Consumer, pulsarclient.MessageID) {}

// OnNegativeAcksSend does nothing.
func (watch) OnNegativeAcksSend(pulsarclient.Consumer, []pulsarclient.MessageID) {}

var _ pulsarclient.ConsumerCloseInterceptor = watch{}
