package projector

import (
	"errors"
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/messaging"
)

// class says whose trouble an error of the publisher is.
type class int

const (
	classMessage class = iota // this message was refused
	classTopic                // its topic is in trouble
	classBroker               // nothing can be sent, or nobody knows whether it was
	classBehind               // an earlier one of its key was not stored, which says nothing about topic or broker
)

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

// refused counts a refusal, also one that makes a dead letter, and says what [worker.verdict] says.
func (w *worker) refused(r *outboxdb.Row, err error) (wait time.Duration, dead bool) {
	w.r.p.telemetry.refused.Add(1, r.Topic, r.TenantID)
	return w.verdict(r, err)
}

// verdict says how long a refused row waits, or that it is dead.
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
