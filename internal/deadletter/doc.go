// Package deadletter lists, counts, replays, discards and expires the dead letters of both boxes, outbox and inbox. A box passes its statements
// ([SQL]) and functions that run them ([Box]).
//
// # Guarantees
//
// An action on many letters works in batches, each in a transaction of its own. The transaction locks the keys that the letters hold, changes the
// payload if the operator has given a new one, moves the letters, adds their entries to the audit, and updates the keys, which may have another
// first row now. If another process changes a letter after it was chosen and before it is locked, the action neither counts the letter nor adds an
// entry to the audit.
//
// Letters that were made after the call has begun, for example because a replayed event died again, are left to the next call. So each call ends.
//
// Read first: act.go:Box.act, then box.go.
package deadletter
