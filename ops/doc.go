// Package ops reads all tables of a service for its operators: what is stuck, and what became of an event. The command oncebox and package
// console show that; a service may show it in a page of its own.
//
//	view := ops.New(db, app.Outbox, app.Inbox, app.Idempotency)
//	list, err := view.Causes(ctx, ops.Filter{})
//	for _, c := range list {
//		fmt.Println(c.Kind, c.Consumer, c.Count, c.Text, c.Since, c.Next)
//	}
//	lives, err := view.Life(ctx, id)
//
// # Guarantees
//
// All but [DeadLetters] only read, and no payloads. [View.Stuck] costs a handful of look-ups by an index and the rows that it lists, at most
// [Looked] of each kind, [View.Status] bounded counts for each lane and consumer: neither
// counts or reads a whole backlog, however many rows wait. [View.Life] has no index for events that wait or were published, see outbox.Store.Locate.
//
// # Limits
//
// The parts of an answer are read one after the other, each in a snapshot of its own. An event that moves between two tables meanwhile may be
// missing, or be there twice, in one answer; the next one has it right.
//
// Read first: view.go:View, then stuck.go and life.go:View.Life.
package ops
