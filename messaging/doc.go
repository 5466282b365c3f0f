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
// A panic of a handler is a [*PanicError] and treated like any other error.
//
// # Metrics
//
// All by consumer and topic:
//
//   - oncebox.consumer.handled: tries of handlers, by outcome (ok, error, permanent, panic)
//   - oncebox.consumer.duration: how long a try took, in seconds, by outcome
//   - oncebox.consumer.running: handlers that run at present
package messaging
