// Package history keeps how the gauges of the last 24 hours went, in the table oncebox_history. The process that reads the gauges for the metrics
// enters what it read; it was chosen by package leader, so one process does so at a time.
//
// # Guarantees
//
// A part has at most 300 rows, and so has each of its first [Most] consumers: a row for each minute of two hours, and for each ten minutes of 22
// more. The writer merges and removes rows itself. Times are those of the database. Nothing is entered for a time in which no process read: a
// picture of the rows has a gap there.
//
// Read first: writer.go:Writer.Note, then reader.go:Read.
package history
