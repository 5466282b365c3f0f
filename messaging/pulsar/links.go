package pulsar

import (
	"errors"
	"time"

	clientbackoff "github.com/apache/pulsar-client-go/pulsar/backoff"

	"github.com/oncebox/oncebox/messaging"
)

// links are the connections of a receiver: one for each partition. The client says that one was lost by asking for a policy of
// reconnection, and that it is back by resetting the policy. The receiver's mutex guards them.
type links struct {
	parts   int                    // how many there should be; 0: not known
	made    int                    // how many consumers were made: what an earlier one lost is of no interest
	lost    map[*lostLink]struct{} // those that are missing
	changed time.Time              // when the first was lost, or the last, or the last came back
	why     error                  // why they are missing, as far as that is known
	asked   time.Time              // when that was asked last
}

// lostLink is a connection that was lost. The client uses it from one goroutine.
type lostLink struct {
	clientbackoff.Policy

	receiver *receiver
	consumer int
}

// whyAgain is how often a receiver that is cut off asks why.
const whyAgain = 5 * time.Second

// errRefused is what is known of an outage in which the address of the broker answers.
var errRefused = errors.New("the address of the broker takes connections, and the subscription is not served: Pulsar's client logs why")

// begin is called before a consumer is made, and returns its number.
func (l *links) begin() int {
	l.made++
	l.lost, l.changed, l.why = map[*lostLink]struct{}{}, time.Now(), nil
	return l.made
}

// lose notes that a connection of a consumer is lost, and returns the policy by which the client gets another.
func (r *receiver) lose(consumer int, policy clientbackoff.Policy) clientbackoff.Policy {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := &lostLink{Policy: policy, receiver: r, consumer: consumer}
	if consumer == r.links.made {
		r.links.lost[lost] = struct{}{}
		if n := len(r.links.lost); n == 1 || n == r.links.parts {
			r.links.changed = time.Now()
		}
	}
	return lost
}

// Next returns the pause before the next attempt. An attempt has failed, so the receiver asks why.
func (l *lostLink) Next() time.Duration {
	r := l.receiver
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isClosed() && time.Since(r.links.asked) > whyAgain {
		r.links.asked = time.Now()
		r.broker.background.Go(func() {
			_, err := r.broker.listening(r.broker.open)
			if err == nil {
				err = errRefused
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.links.why = err
		})
	}
	return l.Policy.Next()
}

// Reset is called when the connection is back.
func (l *lostLink) Reset() {
	l.Policy.Reset()
	r := l.receiver
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.consumer != r.links.made {
		return
	}
	before := len(r.links.lost)
	delete(r.links.lost, l)
	if n := len(r.links.lost); n == 0 || before == r.links.parts {
		r.links.changed = time.Now()
	}
	if len(r.links.lost) == 0 {
		r.links.why = nil
	}
}

// Connection implements [messaging.ConnectedReceiver].
func (r *receiver) Connection() messaging.Connection {
	r.mu.Lock()
	defer r.mu.Unlock()
	away := len(r.links.lost)
	c := messaging.Connection{Parts: max(r.links.parts, away, 1), Away: away, Since: r.links.changed}
	if away > 0 {
		c.Err = r.links.why
		if c.Err == nil {
			c.Err = errors.New("the connection was lost")
		}
	}
	return c
}
