// Package adopt takes over the outbox table that a service has already: it moves the unsent rows into the outbox of oncebox, whose relay publishes them.
//
// A [Mapping] says which column becomes which field of an event, which rows are unsent, and what becomes of a row that was moved. It fits hand-written
// tables, and those of Debezium, watermill-sql, river and others. A [Mover] moves the rows:
//
//	mapping, err := adopt.Read(file)
//	mover, err := adopt.New(ctx, store, mapping, nil)
//	err = mover.Run(ctx) // while old code writes the table
//
// The command "oncebox adopt" does the same. docs/migrating has a guide for each kind of table.
//
// # Guarantees
//
// In one transaction the event is added to the outbox and the row is marked or deleted. So a row is moved once, wherever a process dies. The event has
// the id of the row, or a computed id: if somebody marks a row as unsent again, consumers with an inbox skip the second message.
//
// Rows are moved in the order of [Mapping.Order], and each batch looks from the beginning. So a row that becomes visible late, because its transaction
// took long, is moved although rows behind it were moved before. Movers in several processes take turns.
//
// A row that no event can be made of stays in the table, with all later rows of its ordering key. See [Problem].
//
// # Old and new code at the same time
//
// A mover looks at the table five times a second. If new code records an event meanwhile, the event can overtake a row of its key. [Mover.Forward]
// prevents that: it makes a trigger that forwards each row in the transaction of its writer.
//
// Read first: mapping.go:Mapping, mover.go:Mover.batch, plan.go:newPlan, forward.go:Mover.Forward.
package adopt
