// Package processes lists the processes of a service for its operators: what each runs, in which version, and since when its broker fails.
//
//	list, err := processes.List(ctx, db, app.Outbox, app.Inbox)
//
// Read first: process.go:List.
package processes
