// Package words writes times, durations and numbers as the pages of the console show them.
//
// # Guarantees
//
// Times are UTC. No function depends on a locale or on the zone of the process. A text that is cut is cut between characters.
//
// Read first: time.go:Ago, then number.go.
package words
