// Package outboxdb is what all parts of an outbox are made of: the handle of its database, its rows, and what wakes relays.
//
// # Guarantees
//
// All writers place a key in the same lane and take the same lock for it ([Layout]). What a flush sends to the server is made of one table of the
// columns of rows, and so is what is read of a row.
//
// Read first: handle.go:Handle, then column.go:columns, insert.go:Insertion.
package outboxdb
