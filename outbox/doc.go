// Package outbox stores events in the writer's transaction. Calls for operators are in groups, each in a package of its own: [Store.Dead],
// [Store.Delayed], [Store.Published], [Store.Tenants], [Store.State] and [Store.Upkeep]. The calls of the relay are in internal/lanedb.
//
// A [Store] is a sink of the unit of work (see package uow). You can also call it yourself within any transaction:
//
//	id, err := store.AddSQL(ctx, tx, "order", OrderPlaced{...}) // tx is a *sql.Tx
//
// [Store.AddSQL] takes a transaction of database/sql, [Store.AddPgx] one of pgx, [Store.Add] one of bun. Otherwise they do the same.
// None of them takes a pool, because an event that is committed by itself may announce a change that is then rolled back.
//
// # How rows live
//
// "outbox" is a log: an event is one INSERT, and its row stays where it is. "outbox_progress" records how far each lane has been published.
// A row that has to wait is in "outbox_held", a row that was given up is in "outbox_dead", and a row that was published out of its
// turn is in "outbox_sent". With retention 0 published rows are deleted. The view "outbox_messages" shows all rows with a status,
// see state.Record.
//
//	NEW -> PUBLISHING -> SENT            the usual way
//	       PUBLISHING -> FAILED -> SENT  refused, waited, taken
//	       FAILED -> DEAD                refused too often, or for good
//	       DEAD -> NEW                   replayed by an operator
//
// # Guarantees
//
// Events of one ordering key are published in the order of their commits. The INSERT takes a lock per key before it draws the number of the event, so
// the numbers of a key grow in the order of the commits. All rows of a key are in one lane, and a lane has one owner. Each statement with which an
// owner writes locks the lane's row and compares owner and epoch, so an owner that lost its lane changes nothing, however late it notices.
//
// If the first event of a key was refused or is dead, the key is blocked: its later events wait in order. Other keys go on.
//
// All times are the database's.
//
// # Errors
//
// Add returns [event.ErrInvalid] for an event that it refuses. If tables are missing, the error names the call that makes them.
// [operator.ErrNotDead] means that somebody else has already replayed or discarded the dead letter.
//
// # Metrics
//
//   - oncebox.outbox.recorded, by topic and tenant: events of committed transactions, from units of work and from [Store.Add] and its like.
//     Events of the SQL function oncebox_add are not counted. An event that Store.Add stored in a savepoint that was rolled back
//     is counted if the transaction around it was committed
//   - oncebox.outbox.reconciled, by kind: repairs of Store.Upkeep().Reconcile; 0 unless rows were changed by hand or the clock was wrong
//   - oncebox.outbox.partitions_kept: expired days that stay because [Config.BeforeDrop] failed
//
// Read first: add.go:Store.Add, flush.go:Store.Flush, then internal/outboxdb.
package outbox
