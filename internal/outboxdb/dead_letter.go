package outboxdb

import "time"

// DeadLetter is a row that was given up.
type DeadLetter struct {
	Row
	// DiedAt is when it was given up, by the clock of the database.
	DiedAt time.Time
	// Error is the last refusal, at most 2 KiB of it, in valid UTF-8 and without NUL; beyond that it may be any text.
	Error string
	// Fingerprint is that of the error, see package operator/failures.
	Fingerprint string
	// Holds says that the later events of its key wait until it is replayed or discarded. They do not wait for a letter without a key, for an event that
	// expired, or on a topic whose keys go on after dead letters (projector.Config.ContinueAfterDead).
	Holds bool
}
