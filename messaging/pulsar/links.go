package pulsar

import (
	"errors"
	"sync"
	"time"

	clientbackoff "github.com/apache/pulsar-client-go/pulsar/backoff"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
)

// links are the connections of a receiver: one for each partition. The client says that one was lost by asking for a policy of
// reconnection, and that it is back by resetting the policy.
type links struct {
	ask func(tell func(why error)) // asks in the background why there is no connection

	mu      sync.Mutex
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

	links    *links
	consumer int
}

// whyAgain is how often it is asked why there is no connection.
const whyAgain = 5 * time.Second

// errRefused is what is known of an outage in which the address of the broker answers.
var errRefused = errors.New("the address of the broker takes connections, and the subscription is not served: Pulsar's client logs why")

// begin is called before a consumer of so many parts is made, and returns its number.
func (l *links) begin(parts int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made++
	l.parts, l.lost, l.changed, l.why = parts, map[*lostLink]struct{}{}, time.Now(), nil
	return l.made
}

// expect notes how many parts the topic has now.
func (l *links) expect(parts int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parts = parts
}

// lose notes that a connection of a consumer is lost, and returns the policy by which the client gets another.
func (l *links) lose(consumer int, policy clientbackoff.Policy) clientbackoff.Policy {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := &lostLink{Policy: policy, links: l, consumer: consumer}
	if consumer == l.made {
		l.lost[lost] = struct{}{}
		if n := len(l.lost); n == 1 || n == l.parts {
			l.changed = time.Now()
		}
	}
	return lost
}

// Next returns the pause before the next attempt. An attempt has failed, so it is asked why.
func (l *lostLink) Next() time.Duration {
	all := l.links
	all.mu.Lock()
	defer all.mu.Unlock()
	if time.Since(all.asked) > whyAgain {
		all.asked = time.Now()
		all.ask(all.tell)
	}
	return l.Policy.Next()
}

func (l *links) tell(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.why = why
}

// Reset is called when the connection is back.
func (l *lostLink) Reset() {
	l.Policy.Reset()
	all := l.links
	all.mu.Lock()
	defer all.mu.Unlock()
	if l.consumer != all.made {
		return
	}
	before := len(all.lost)
	delete(all.lost, l)
	if n := len(all.lost); n == 0 || before == all.parts {
		all.changed = time.Now()
	}
	if len(all.lost) == 0 {
		all.why = nil
	}
}

// state is what [messaging.ConnectedReceiver] shows.
func (l *links) state() messaging.Connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	away := len(l.lost)
	c := messaging.Connection{Parts: max(l.parts, away, 1), Away: away, Since: l.changed}
	if away > 0 {
		c.Err = l.why
		if c.Err == nil {
			c.Err = errors.New("the connection was lost")
		}
	}
	return c
}

// longestReconnect bounds the pause between two attempts to come back. The client's own doubles up to a minute, so that
// after a long outage everything would stand still for another one.
const longestReconnect = 3 * time.Second

// reconnect paces one producer's or consumer's attempts. The client uses each from one goroutine.
type reconnect struct {
	pauses  retry.Policy
	attempt int
}

func newReconnect() clientbackoff.Policy {
	return &reconnect{pauses: retry.Policy{Delay: 100 * time.Millisecond, MaxDelay: longestReconnect}}
}

// Next returns the pause before the next attempt.
func (r *reconnect) Next() time.Duration {
	r.attempt++
	return r.pauses.Pause(r.attempt)
}

// IsMaxBackoffReached is for the client's metrics.
func (r *reconnect) IsMaxBackoffReached() bool {
	return r.pauses.Longest(r.attempt) == longestReconnect
}

// Reset is called when it is connected again.
func (r *reconnect) Reset() { r.attempt = 0 }
