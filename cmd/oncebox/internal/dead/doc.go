// Package dead has the commands "oncebox dead": it lists, shows, replays, edits and discards dead letters of outbox and inbox.
//
// Read first: dead.go:selection, then act.go:carryOut.
package dead
