// Package behind says who and what keeps a consumer behind, and how late it is. A consumer is behind if more messages come than it handles, see
// state.TroubleBehind.
//
//	queue := behind.Queue{Consumer: "mailer", Topic: "order", Since: trouble.Since, Messages: trouble.Waiting.Messages}
//	load, err := queue.Read(ctx, app.Outbox, app.Inbox)
//
// # Guarantees
//
// It only reads, and a bounded number of rows, however many messages wait: see [outboxstate.Reader.Loads].
//
// # Limits
//
// A broker does not report whose messages wait. Therefore the events are counted that this service has recorded lately for the topic. If another service
// publishes to the topic, its events are in the database of that service.
//
// Read first: queue.go:Queue.Read, then load.go:Load.Text.
package behind
