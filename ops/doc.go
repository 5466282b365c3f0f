// Package ops reads all tables of a service for its operators. It answers two questions: what is stuck, and what became of an event? The command
// oncebox and package console show the answers. A service may show them in a page of its own.
//
//	view := ops.New(db, app.Outbox, app.Inbox, app.Idempotency)
//	list, archived, err := view.Causes(ctx, ops.Filter{})
//	for _, c := range list {
//		fmt.Println(c.Kind, c.Consumer, c.Count, c.Text, c.Since, c.Next)
//	}
//	lives, err := view.Life(ctx, id)
//
// # Guarantees
//
// All functions but those of [DeadLetters] and [View.Failures] only read, and they read no payloads. [View.Causes] goes from one cause to the next in an
// index and counts up to a bound. [View.Stuck] reads the rows that it lists, at most [Looked] of each kind. [View.Status] counts the rows of each lane and
// consumer up to a limit. So neither of them counts or reads a whole backlog, however many rows wait. [View.Life] is slower, because events that wait or
// were published have no index by id, see outbox.Store.Locate.
//
// # Limits
//
// The parts of an answer are read in snapshots of their own, some at the same time. If an event moves to another table between these reads, one
// answer may lack the event or contain it twice. The next answer is right.
//
// Read first: view.go:View, then stuck.go and life.go:View.Life.
package ops
