// Package consumer has what the pages of the console show about consumers, and the form that pauses, resumes or forgets one of them.
//
// # Guarantees
//
// Errors and reasons stay texts: the templates escape them. Reading changes nothing. A change has its entry in the audit, in the same transaction.
//
// Read first: row.go:Row, then view.go:View and change.go:Change.
package consumer
