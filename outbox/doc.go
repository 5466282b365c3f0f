// Package outbox stores events in the writer's transaction. What operators do with the events is in groups, each in a package of its own: [Store.Dead],
// [Store.Delayed], [Store.Published], [Store.Tenants], [Store.State] and [Store.Upkeep]. What the relay does with them is in internal/lanedb.
//
// A [Store] is a sink of the unit of work (see package uow), or is called by hand within any transaction:
//
//	id, err := store.AddSQL(ctx, tx, "order", OrderPlaced{...}) // tx is a *sql.Tx
//
// [Store.AddSQL] takes a transaction of database/sql, [Store.AddPgx] one of pgx, [Store.Add] one of bun. They are alike in all else.
// None of them takes a pool: an event that is committed by itself may announce what is then rolled back.
//
// # How rows live
//
// "outbox" is a log: an event is one INSERT, and its row stays where it is. "outbox_progress" says how far each lane has come.
// A row that cannot go yet waits in "outbox_held", a row that never can is in "outbox_dead", and one that left out of its
// turn is in "outbox_sent". With retention 0 published rows are deleted. The view "outbox_messages" shows all of them with a status,
// see state.Record.
//
//	NEW -> PUBLISHING -> SENT            the usual way
//	       PUBLISHING -> FAILED -> SENT  refused, waited, taken
//	       FAILED -> DEAD                refused too often, or for good
//	       DEAD -> NEW                   replayed by an operator
//
// # Guarantees
//
// Rows of one ordering key leave in the order of their commits. Writers of a key take its lock in the INSERT itself,
// before the sequence is drawn, so the sequence is the order of commit. All rows of a key are in one lane, a lane has
// one owner, and everything the owner writes is fenced: one statement locks the lane's row, compares owner and epoch,
// and touches only what that returned. An owner that lost its lane, however late it notices, changes nothing.
//
// A key whose head was refused or is dead is blocked: what follows it waits in order behind it. Other keys go on.
//
// All times are the database's.
//
// # Errors
//
// [event.ErrInvalid] is the error of events that Add refuses. Missing tables are reported with the call that makes them. [operator.ErrNotDead] says that
// somebody else was faster with a dead letter.
//
// # Metrics
//
//   - oncebox.outbox.recorded, by topic and tenant: events of transactions that have committed: of units of work, and what was given to [Store.Add]
//     and its like; not what the SQL function oncebox_add stores. What Store.Add stored in a
//     savepoint that was undone counts if the transaction around it was committed
//   - oncebox.outbox.reconciled, by kind: repairs of Store.Upkeep().Reconcile; 0 unless rows were changed by hand or the clock was wrong
//   - oncebox.outbox.partitions_kept: expired days that stay because [Config.BeforeDrop] failed
//
// Read first: add.go:Store.Add, flush.go:Store.Flush, then internal/outboxdb.
package outbox
