// Package audit reads and expires the table oncebox_audit: the changes that operators made by hand, or that a retention made. Each part of oncebox
// adds its own entries, in the same statement as the change: so there is no entry without its change, and no change without its entry.
//
// Read first: log.go:Log.List.
package audit
