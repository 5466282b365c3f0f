// Package presence keeps the table oncebox_process: which processes of a service are alive, what they run, and which version. A process enters
// itself, renews its row, and removes it when it ends in order. Nothing depends on the table: it is for operators.
//
// Read first: presence.go:Presence.Keep, then version.go.
package presence
