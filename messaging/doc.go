// Package messaging is what handlers and brokers have in common: messages, handlers and their router, the loop that
// consumes, and the two small interfaces that a broker adapter implements.
//
// A handler is a function of a context and an event; [Handle] binds it to the event's type:
//
//	router := messaging.NewRouter(registry)
//	messaging.Handle(router, func(ctx context.Context, e OrderPlaced) error { ... })
//
// It learns more about the message with [FromContext]. What it returns decides what happens next: nil settles the
// message, [Permanent] gives it up at once, [RetryAfter] asks for a pause, every other error is tried again.
//
// A [Middleware] is around handlers, of a [Router] ([Router.Use]) or of one consumer (inbox.Use): [MaxAge] skips what is too old, [Logging] logs
// each message, and [Recover] decides what a panic becomes.
//
// Brokers live in packages of their own (messaging/pulsar, messaging/memory) and pass the suite in
// messaging/messagingtest. [Direct] needs no broker at all.
//
// # Guarantees
//
// At least once, in order per (topic, key): a [Publisher] never stores a message of a key while an earlier one of the
// same call is not stored, and a [Consumer] never runs two messages of one key at once, nor a later one before an
// earlier one was settled. Once-only effects are the business of package inbox.
//
// # Errors
//
// What a Publisher reports has a class: [IsPermanent] (this message will never be taken), [*TopicError] (its topic is
// in trouble), [ErrBrokerDown] (nothing can be sent), [ErrUnknown] (perhaps sent), [ErrBehind] (held back behind a
// failed message of its key). Anything else is a refusal of this one message that may pass when tried again.
//
// [Router] makes its errors permanent where trying again leads nowhere, skips types that it has no handler for, tries again while
// the key of a sealed event cannot be had, and settles an event whose key was erased ([event.ErrErased]).
//
// A panic of a handler is a [*PanicError] and treated like any other error.
//
// # Metrics
//
// By consumer and topic, but for the last one:
//
//   - oncebox.consumer.handled: tries of messages, alone or in a batch, by outcome (ok, skipped, error, permanent, panic)
//   - oncebox.consumer.duration: how long one call of a handler took, in seconds, by outcome; for batches also partial
//   - oncebox.consumer.running: handlers that run at present
//   - oncebox.consumer.backlog: what waits at the broker, as [Backlog] says; add up the processes of a [Failover] subscription,
//     and take the greatest of the others
//   - oncebox.router.skipped: messages that a [Router] settled because their type has no handler, by topic
//
// Read first: handler.go:HandlerFunc, consumer.go:Consumer.Run, then consumer_work.go:Consumer.accept and router.go:Router.Handle.
package messaging
