// Package audit reads and expires the table oncebox_audit: what was done by hand or by a retention. Each part of oncebox enters its own deeds, in
// the statement that does them: an entry without its deed, or a deed without its entry, cannot be.
//
// Read first: log.go Log.List.
package audit
