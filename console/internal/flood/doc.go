// Package flood says that more messages wait for consumers than they handle at once: for which consumers, how many, which of them is the slowest, whether
// its number rises or falls, and which tenant sends at least half of them.
//
// # Guarantees
//
// All consumers of a topic with more than state.Many messages are one flood. A consumer that handles nothing is in none: that is a fault of its own. The
// beginning of a flood stays the same until it is over.
//
// It reads a bounded number of rows for each topic, however many messages wait, and nothing without a flood: see behind.Shares.
//
// Read first: flood.go:Read.
package flood
