// Package deadletter is the engine of both boxes of dead letters: it lists, counts, replays, discards and expires them. A box, outbox or
// inbox, gives its statements ([SQL]) and says how they are run ([Box]).
//
// # Guarantees
//
// A deed on many letters goes batch by batch, each in a transaction of its own: lock what the letters hold, change the payload where that is asked
// for, move them together with their entries in the audit, and settle what waited behind them. A letter that another process treats
// between the choice and the lock is neither counted nor entered in the audit.
//
// Letters that die after the call has begun, perhaps because they were just replayed, are left to another call. So each call ends.
//
// Read first: act.go Box.act, then box.go.
package deadletter
