// Package trend says whether a number rises or falls, and when it will be 0.
//
//	t := trend.Of(&history, waiting, now)
//
// # Guarantees
//
// A trend comes from the last four full minutes of a history and from the present number, and never from two readings: a number that a broker estimates
// jumps from one answer to the next. Two steps at least go in the direction of a trend, and none in the other. A rate needs three steps of about one size.
//
// Read first: trend.go:Of.
package trend
