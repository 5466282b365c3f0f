// Package inbox makes a handler's effect happen once, however often its message comes, in the order of its key. A message that cannot be handled yet
// is kept in the database until it can. A read model is made with package readmodel. The relay of an outbox is package projector.
//
//	units := uow.New(db, nil)
//	box := inbox.New(units, nil)
//	handler := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
//		_, err := units.DB(ctx).NewRaw("UPDATE ...").Exec(ctx)
//		return err
//	}))
//	go box.RunParked(ctx) // oncebox.App does so
//
// The wrapped handler runs in a unit of work whose first statement inserts an entry for the message into the table inbox. The entry, the handler's
// statements in the unit and the events that it emits commit together. Then the message is acknowledged. If the table already has the entry,
// the handler is not called. [Inbox.WrapBatch] does the same for many messages at once.
//
// # What a handler returns
//
//   - nil: the message is handled.
//   - an error: the unit is rolled back. The process that received the message tries it again, [RetryPolicy.Tries] times in all, while later messages
//     of its key wait. Then the message is parked: it waits in the table inbox_parked, and is settled at the broker. If a handler does not end
//     within [Config.HandlerTimeout], its context is cancelled and the try has failed, whatever the handler returns.
//   - [messaging.RetryAfter]: the same, but the error says how long the next pause is. If it is longer than the Delay of the [RetryPolicy], the
//     message is parked at once.
//   - [event.ErrNewerVersion], [event.ErrUnknownType] or [messaging.ErrNoHandler]: this build of the program does not know the message.
//     It is parked at once and tried again until a build that knows it is deployed, for at most [RetryPolicy.DeployWait]. These tries do
//     not count. A messaging.Router skips types that it has no handler for, unless it is strict.
//   - [messaging.Permanent], [event.ErrErased], a payload that cannot be decoded, or an invalid identifier: the message becomes a dead
//     letter at once: a row of the table inbox_dead with its unchanged bytes. So does a message that has failed for [RetryPolicy.GiveUpAfter]
//     or has killed [RetryPolicy.MaxCrashes] processes. A messaging.Router itself settles events whose key was erased.
//
// While a message is parked or dead, later messages of its ordering key are parked behind it. [Inbox.RunParked] handles them in their order when
// the message was handled, or when an operator has replayed or discarded the dead letter. Messages of other keys go on.
// [Config.ContinueAfterDead] and [Unordered] change this.
//
// # Guarantees
//
// Once per (consumer, tenant, source, message id): if several processes handle copies of a message at the same moment, one handler runs and the other
// processes wait for it. A handler that is interrupted before COMMIT leaves neither effect nor entry. Work of a handler outside of its unit happens
// at least once. Use [Inbox.WrapLeased] and step.Call for it.
//
// In order per key: one process at a time handles, parks or releases messages of a key, in the order in which the subscription delivers them.
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
// One of the processes that run [Inbox.RunParked] reads the values of the last three lines from the database every 15 seconds. Only that process
// reports them.
//
// Read first: inbox.go:Inbox.Wrap and wrapped.go:wrapped.Handle, then run_parked.go:Inbox.RunParked and head.go:head.run.
package inbox
