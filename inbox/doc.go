// Package inbox makes a handler's effect happen once, however often its message comes.
//
//	units := uow.New(db, nil)
//	box := inbox.New(units, nil)
//	handler := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
//		_, err := units.DB(ctx).NewRaw("UPDATE ...").Exec(ctx)
//		return err
//	}))
//
// The wrapped handler runs in a unit of work whose first statement enters the message in the table inbox. The entry, what
// the handler does through the unit and the events it emits commit together, and then the message is acknowledged. When
// the entry is there already, the handler is not called.
//
// # Guarantees
//
// Once per (consumer, tenant, source, message id): copies of a message that are handled at the same moment, in any number
// of processes, wait for each other, and one of them runs. Whatever interrupts a handler before COMMIT leaves neither
// effect nor entry; whatever interrupts it afterwards brings a copy that finds the entry. What a handler does outside of
// its unit happens at least once.
//
// Messages with an ordering key take an advisory lock of (consumer, tenant, key) first, for the length of the transaction.
// So two processes that were given the same key, as brokers do at a takeover, handle it one after the other, and a
// message waits for the one before it to be visible.
//
// A message whose handler gave up, by [messaging.Permanent], is not lost: it becomes a row of inbox_dead, with its bytes
// as they were, and counts as settled. So does one that cannot be decoded, whose type nobody handles, or whose
// identifiers are none. See [Inbox.Dead] and [Inbox.Replay].
//
// Entries are kept for [Config.Retention] after they were made. It is how long a copy may stay away: more than brokers
// redeliver, and more than the outbox of the sender keeps events that somebody might replay.
//
// # Errors
//
// The wrapped handler returns nil for what is settled: handled, handled before, or a dead letter. Every error means that
// nothing happened and that the message must come again.
//
// # Metrics
//
//   - oncebox.inbox.messages: messages by consumer and outcome (handled, duplicate, failed, dead)
package inbox
