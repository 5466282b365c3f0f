package projector

import (
	"errors"
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/messaging"
)

// class says what an error of the publisher is about. It decides who waits: the message and its key, the topic, or
// everything.
type class int

const (
	classMessage class = iota // the broker refused this message: the only class that counts as a try of the event
	classTopic                // the topic is in trouble
	classBroker               // nothing can be sent, or it is unknown whether the message was stored
	classBehind               // an earlier message of its key was not stored, which says nothing about topic or broker
)

// classify sorts errors from the most specific to the least. An error that says nothing about itself is one of the
// message: then the message becomes a dead letter in the end, instead of holding up a topic for ever.
func classify(err error) class {
	var topic *messaging.TopicError
	switch {
	case messaging.IsPermanent(err):
		return classMessage
	case errors.As(err, &topic):
		return classTopic
	case errors.Is(err, messaging.ErrBrokerDown), errors.Is(err, messaging.ErrUnknown):
		return classBroker
	case errors.Is(err, messaging.ErrBehind):
		return classBehind
	default:
		return classMessage
	}
}

// refused counts a refusal in the metrics, whether or not it makes a dead letter, and returns the result of
// [worker.verdict].
func (w *worker) refused(r *outboxdb.Row, err error) (wait time.Duration, dead bool) {
	w.r.p.telemetry.refused.Add(1, r.Topic, r.TenantID)
	return w.verdict(r, err)
}

// verdict returns how long a refused row waits, or that it is dead. The row's own limit of tries comes before that of
// the configuration. -1 in the configuration means that no refusal makes the row dead, not even a permanent one,
// unless the row has a limit of its own. A delay that the publisher asks for comes before the configured pause.
func (w *worker) verdict(r *outboxdb.Row, err error) (wait time.Duration, dead bool) {
	cfg := &w.r.p.cfg
	limit := cfg.MaxRetryAttempts
	if r.Delivery.MaxAttempts > 0 {
		limit = r.Delivery.MaxAttempts
	}
	attempts := r.RetryCount + 1
	if limit > 0 && (messaging.IsPermanent(err) || attempts >= limit) {
		return 0, true
	}
	if d, ok := messaging.RetryDelay(err); ok {
		return d, false
	}
	return cfg.Retry.Pause(attempts), false
}
