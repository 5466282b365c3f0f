// Package causes prepares what the pages of the console show about the causes of failures: addresses, lines and rows of the groups of package
// operator/failures, their plots, and the form with which an operator notes or archives a cause.
//
// # Guarantees
//
// A cause has the same words on all pages. Texts of errors and notes stay texts: the templates escape them.
//
// Read first: row.go:Row, then kind.go:Kinds.
package causes
