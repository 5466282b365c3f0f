package pulsar

import (
	"errors"
	"sync"
	"time"

	clientbackoff "github.com/apache/pulsar-client-go/pulsar/backoff"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
)

// links tracks the connections of a receiver: one for each partition. The client has no events for that. When it loses a connection it asks
// for a reconnection policy, and when it is connected again it resets the policy.
type links struct {
	ask func(report func(why error)) // finds out in the background why there is no connection, and calls report

	mu      sync.Mutex
	parts   int                    // how many connections there should be; 0: not known
	made    int                    // number of consumers made so far: lost connections of earlier ones do not count
	lost    map[*lostLink]struct{} // the missing connections
	changed time.Time              // when the number of missing connections last changed between none, some and all
	why     error                  // why they are missing, as far as that is known
	asked   time.Time              // when the reason was last asked for
}

// lostLink is a connection that was lost. The client uses it from one goroutine.
type lostLink struct {
	clientbackoff.Policy

	links    *links
	consumer int
}

// whyAgain is the time between two questions for the reason.
const whyAgain = 5 * time.Second

// errRefused is the reason if the address of the broker accepts connections and the subscription still has none.
var errRefused = errors.New("the broker's address accepts connections, but the broker does not serve the subscription: see the log lines of " +
	"Pulsar's client")

// begin is called before a consumer with this number of parts is made, and returns the number of the consumer.
func (l *links) begin(parts int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made++
	l.parts, l.lost, l.changed, l.why = parts, map[*lostLink]struct{}{}, time.Now(), nil
	return l.made
}

// expect sets how many parts the topic has now.
func (l *links) expect(parts int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parts = parts
}

// lose records that a consumer has lost a connection, and returns the policy for its reconnection.
func (l *links) lose(consumer int, policy clientbackoff.Policy) clientbackoff.Policy {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := &lostLink{Policy: policy, links: l, consumer: consumer}
	if consumer == l.made {
		l.lost[lost] = struct{}{}
		// Only the steps between none, some and all are worth a new time: operators see since when a
		// consumer is away or incomplete.
		if n := len(l.lost); n == 1 || n == l.parts {
			l.changed = time.Now()
		}
	}
	return lost
}

// Next returns the pause before the next attempt. It is called after a failed attempt, so it also asks for the reason.
func (l *lostLink) Next() time.Duration {
	all := l.links
	all.mu.Lock()
	defer all.mu.Unlock()
	if time.Since(all.asked) > whyAgain {
		all.asked = time.Now()
		all.ask(all.report)
	}
	return l.Policy.Next()
}

// report stores the reason that ask has found out.
func (l *links) report(why error) {
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
	// An earlier consumer's connections do not count any more, see made.
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

// state returns the connection as [messaging.ConnectedReceiver] defines it.
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

// longestReconnect bounds the pause between two attempts to reconnect. The client's own pause doubles up to a minute, so that after a long
// outage everything would stand still for another minute.
const longestReconnect = 3 * time.Second

// reconnect sets the pauses between the attempts of one producer or consumer. The client uses it from one goroutine.
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
