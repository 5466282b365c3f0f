// Package inbox makes a handler's effect happen once, however often its message comes, in the order of its key, and keeps what
// cannot be handled until it can. A read model is made with package readmodel; the relay of an outbox is package projector.
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
//     then it is parked: it waits in the table inbox_parked, and at the broker it is settled. A handler that does not end within
//     [Config.HandlerTimeout] has its context cancelled and has failed, whatever it returns.
//   - [messaging.RetryAfter]: the same, with a pause of its own. It is parked at once if that is longer than the Delay of the [RetryPolicy].
//   - [event.ErrNewerVersion], [event.ErrUnknownType] or [messaging.ErrNoHandler]: this build of the program does not know the message.
//     It is parked at once and tried again until a build that knows it is deployed, at most for [RetryPolicy.DeployWait]; these tries do
//     not count. A messaging.Router skips types that it has no handler for, unless it is strict.
//   - [messaging.Permanent], what cannot be decoded, whose handler returns [event.ErrErased], or whose
//     identifiers are none: it is a dead letter at once, with its bytes as they were, in the table inbox_dead. So is what has
//     failed for [RetryPolicy.GiveUpAfter] or killed [RetryPolicy.MaxCrashes] processes. A messaging.Router settles events whose key was erased by itself.
//
// A message that is parked or dead holds its ordering key: later ones are parked behind it, and [Inbox.RunParked] handles them
// in their order once it was handled, or once an operator has replayed or discarded the dead letter. Other keys go on.
// [Config.ContinueAfterDead] and [Unordered] say otherwise.
//
// # What an operator decides
//
// From any process that has the database, with or without handlers: [Inbox.State] shows what runs and where something waits, [Inbox.Dead] and
// [Inbox.Parked] what it is. [Inbox.Replay] puts a dead letter back to its place, where the service handles it, and [Inbox.Discard]
// has its key go on without it; [Inbox.ReplayAll] and [Inbox.DiscardAll] do so by filter. [Inbox.RetryNow] and [Inbox.GiveUp] are
// for a parked message that fails. Who did what and why is in [Inbox.Audit], written in the same transaction.
//
// # Guarantees
//
// Once per (consumer, tenant, source, message id): copies of a message that are handled at the same moment, in any number
// of processes, wait for each other, and one of them runs. Whatever interrupts a handler before COMMIT leaves neither
// effect nor entry; whatever interrupts it afterwards brings a copy that finds the entry. What a handler does outside of
// its unit happens at least once.
//
// In order per key: a process that handles, parks or releases a message takes an advisory lock of (consumer, tenant, key) first, for
// the length of the transaction. For a parked message, whose row is locked while it is handled, that is when its handler has ended. So two
// processes that were given the same key, as brokers do at a takeover, handle it one after the other, a message waits for the one
// before it to be visible, and none is parked behind a message that has just been released.
// The lock says that only one runs, not which one: the order is that in which the subscription brings the messages, and that of
// the table once one is parked. A broker that brings a later message first, or a Shared subscription, has it handled first.
//
// Tries are counted in the database. That of a first try is written when it fails; a later one, and that of a message that may
// have been in work when a process died ([Config.CrashGuard]), before it is made: a message that kills its process is given up in
// the end. A try that was interrupted because the process stops does not count.
//
// # Calls to the outside
//
// A transaction does not reach mail, payment, or somebody's API. In the order of preference:
//
//   - Emit a command in the unit of [Inbox.Wrap], and let a handler that does nothing else make the call. The decision happens
//     once, whatever becomes of the call.
//   - [Inbox.WrapLeased] runs a handler without a transaction, under a lease of the message's key, and [Step] stores the result of
//     each call, so that a retry skips what is done. A call is made again only if its process died, or lost the lease, between
//     the call and the storing of its result. The key that Step gives lets the other side recognize such a repetition.
//   - [Key] is the key of the message as a whole, for any handler.
//
// # Retention
//
// Entries are kept for [Config.Retention] after they were made, and those of a consumer that is away for as long after its last
// run. It is how long a copy may stay away: more than brokers redeliver, and more than the outbox of the sender keeps events
// that somebody might replay.
//
// # Errors
//
// The wrapped handler returns nil for what is settled: handled, handled before, parked, or a dead letter. Every error means that
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
package inbox
