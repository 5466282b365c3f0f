package pulsar

import (
	"time"

	clientbackoff "github.com/apache/pulsar-client-go/pulsar/backoff"

	"github.com/oncebox/oncebox/retry"
)

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
