// Package outboxdb has the parts that all packages of the outbox share: the handle of its database, its rows, and the
// notifications that wake relays.
//
// # Guarantees
//
// All writers place a key in the same lane and take the same lock for it ([Layout]). The statements that store rows
// and the statements that read rows are made from one table of columns, so they cannot disagree.
//
// Read first: handle.go:Handle, then column.go:columns, insert.go:Insertion.
package outboxdb
