// Package deadletter is the engine of both boxes of dead letters: it lists, counts, replays, discards and expires them. A box, outbox or
// inbox, gives its statements ([SQL]) and says how they are run ([Box]).
//
// # Guarantees
//
// An action on many letters is done in batches, each in a transaction of its own: it locks the keys that the letters hold, changes the payload if
// that is wanted, moves the letters and adds their entries to the audit, and adjusts the keys, whose first rows may be others now. A letter that
// another process changes between the choice and the lock is neither counted nor entered in the audit.
//
// Letters that die after the call has begun, perhaps because they were just replayed, are left to another call. So each call ends.
//
// Read first: act.go:Box.act, then box.go.
package deadletter
