// Package messaging is what handlers and brokers have in common: messages, handlers and their router, the consumer that calls handlers, and the
// interfaces of broker adapters. An adapter has a [Publisher] and a [Receiver], and may have others, such as [Declarer].
//
// A handler is a function of a context and an event. [Handle] binds it to the event's type:
//
//	router := messaging.NewRouter(registry)
//	messaging.Handle(router, func(ctx context.Context, e OrderPlaced) error { ... })
//
// [FromContext] gives it the message. Its result decides what happens next: nil settles the
// message, [Permanent] gives it up at once, [RetryAfter] sets the pause before the next try, and after every other error it is tried again.
//
// A [Middleware] is called around the handlers of a [Router] ([Router.Use]) or of one consumer (inbox.Use): [MaxAge] skips old messages, [Logging] logs
// each message, and [Recover] turns a panic into an error.
//
// Brokers live in packages of their own (messaging/pulsar, messaging/memory) and pass the suite in
// messaging/messagingtest. [Direct] needs no broker at all.
//
// # Guarantees
//
// At least once, in order per (topic, key). A [Publisher] never stores a message of a key while an earlier message of the key in the
// same call is not stored. A [Consumer] never runs two messages of one key at once, nor a later message before an
// earlier one was settled. Package inbox makes effects happen only once.
//
// # Errors
//
// The error of a Publisher has a class: [IsPermanent] (the broker will never take this message), [*TopicError] (its topic is
// in trouble), [ErrBrokerDown] (nothing can be sent), [ErrUnknown] (perhaps sent), [ErrBehind] (not sent, because an earlier
// message of its key failed). Any other error is a refusal of this one message, which may succeed at the next try.
//
// [Router] makes its errors permanent where another try cannot succeed. It skips types that it has no handler for, tries again while
// the key of a sealed event cannot be read, and settles an event whose key was erased ([event.ErrErased]).
//
// A panic of a handler becomes a [*PanicError] and is treated like any other error.
//
// # Metrics
//
// By consumer and topic, but for the last one:
//
//   - oncebox.consumer.handled: tries of messages, alone or in a batch, by outcome (ok, skipped, error, permanent, panic)
//   - oncebox.consumer.duration: how long one call of a handler took, in seconds, by outcome; for batches also partial
//   - oncebox.consumer.running: handlers that run at present
//   - oncebox.consumer.backlog: messages that wait at the broker, see [Backlog]. With a [Failover] subscription sum it over the processes; with
//     others take the maximum
//   - oncebox.router.skipped: messages that a [Router] settled because their type has no handler, by topic
//
// Read first: handler.go:HandlerFunc, consumer.go:Consumer.Run, then consumer_work.go:Consumer.accept and router.go:Router.Handle.
package messaging
