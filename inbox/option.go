package inbox

import "time"

// Option changes one wrapped handler.
type Option func(*wrapped)

// Unordered has messages of one key handled without regard to each other: nothing waits for a message that failed, or for
// another process that handles its key. For subscriptions of type [messaging.Shared], which have no order to keep.
func Unordered() Option { return func(w *wrapped) { w.unordered = true } }

// AtOnce says how many messages the consumer may have at once, its Queue, if that may be more than [Config.CrashGuard].
func AtOnce(n int) Option { return func(w *wrapped) { w.atOnce = n } }

// HandlerTimeout is [Config.HandlerTimeout] for one consumer. 0: as configured.
func HandlerTimeout(d time.Duration) Option {
	return func(w *wrapped) {
		if d != 0 {
			w.timeout = d
		}
	}
}

// Retry is [Config.Retry] for one consumer. What the policy does not say is as configured.
func Retry(p RetryPolicy) Option { return func(w *wrapped) { w.retry = p.or(w.retry) } }

// ContinueAfterDead is [Config.ContinueAfterDead] for one consumer.
func ContinueAfterDead() Option { return func(w *wrapped) { w.continueAfterDead = true } }

// Durable has messages stored, settled, and then handled from the database by [Inbox.RunParked]: for handlers that take so
// long that the broker should not wait for them, and for many messages that come at once. Their order is kept. Without it the
// messages of one key whose handler is slow, and does not fail, wait behind each other in the consumer's queue, until other keys
// get no place in it.
func Durable() Option { return func(w *wrapped) { w.durable = true } }

// OfTopic says which topic the handler is for. A consumer that has several must say so, because parked messages and dead
// letters have to find the one that they were meant for.
func OfTopic(topic string) Option { return func(w *wrapped) { w.topic = topic } }
