// Package inbox makes a handler's effect happen once, however often its message comes, in the order of its key. A message that cannot be
// handled yet is kept in the database until it can. A read model is made with package readmodel; the relay of an outbox is package
// projector.
//
//	units := uow.New(db, nil)
//	box := inbox.New(units, nil)
//	handler := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
//		_, err := units.DB(ctx).NewRaw("UPDATE ...").Exec(ctx)
//		return err
//	}))
//	go box.RunParked(ctx) // oncebox.App does so
//
// The wrapped handler runs in a unit of work whose first statement enters the message in the table inbox. The entry, what
// the handler does through the unit and the events it emits commit together, and then the message is acknowledged. When
// the entry is there already, the handler is not called. [Inbox.WrapBatch] does that for many messages at once.
//
// # What a handler returns
//
//   - nil: the message is handled.
//   - an error: what the handler did is undone. The message is tried again where it is, its key held, [RetryPolicy.Tries] times in all;
//     then it is parked: it waits in the table inbox_parked, and at the broker it is settled. The context of a handler that does not end
//     within [Config.HandlerTimeout] is cancelled, and the try has failed, whatever the handler returns.
//   - [messaging.RetryAfter]: the same, with a pause of its own. It is parked at once if that is longer than the Delay of the [RetryPolicy].
//   - [event.ErrNewerVersion], [event.ErrUnknownType] or [messaging.ErrNoHandler]: this build of the program does not know the message.
//     It is parked at once and tried again until a build that knows it is deployed, at most for [RetryPolicy.DeployWait]; these tries do
//     not count. A messaging.Router skips types that it has no handler for, unless it is strict.
//   - [messaging.Permanent], [event.ErrErased], a payload that cannot be decoded, or an invalid identifier: the message becomes a dead
//     letter at once, with its bytes as they were, in the table inbox_dead. So does a message that has failed for [RetryPolicy.GiveUpAfter]
//     or has killed [RetryPolicy.MaxCrashes] processes. A messaging.Router settles events whose key was erased by itself.
//
// A message that is parked or dead holds its ordering key: later ones are parked behind it, and [Inbox.RunParked] handles them
// in their order once it was handled, or once an operator has replayed or discarded the dead letter. Other keys go on.
// [Config.ContinueAfterDead] and [Unordered] say otherwise.
//
// # Guarantees
//
// Once per (consumer, tenant, source, message id): copies of a message that are handled at the same moment, in any number of processes, wait for each
// other, and one of them runs. A handler that is interrupted before COMMIT leaves neither effect nor entry. What a handler does outside of its
// unit happens at least once: [Inbox.WrapLeased] and [Step] are for that.
//
// In order per key: one process at a time handles, parks or releases messages of a key, and the order is that in which the subscription brings them.
// Tries are counted in the database, so that a message that kills its process is given up in the end. Entries are kept for [Config.Retention].
//
// docs/inbox.md has the locks, the cases, calls to the outside, and what an operator decides.
//
// # Errors
//
// The wrapped handler returns nil for a message that is settled: handled, handled before, parked, or a dead letter. Every error means that
// nothing happened and that the message must come again.
//
// # Metrics
//
//   - oncebox.inbox.messages: messages by consumer and outcome (handled, skipped, duplicate, parked, failed, dead, interrupted, and leased or
//     locked: it waits for another process that runs a message of its key)
//   - oncebox.inbox.parked, oncebox.inbox.dead: messages that wait in the database, and dead letters, by consumer; see package inbox/state
//   - oncebox.inbox.keys: keys that do not flow, by consumer and state (waiting, failed, dead)
//   - oncebox.inbox.oldest_age: how long the oldest parked message has waited, by consumer, in seconds
//
// The state in the database, which the last three lines name, is read every 15 seconds by one process of all that run [Inbox.RunParked], and only
// that one shows it.
//
// Read first: inbox.go:Inbox.Wrap and wrapped.go:wrapped.Handle, then run_parked.go:Inbox.RunParked and head.go:Inbox.runHead.
package inbox
