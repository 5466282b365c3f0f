// Package lanedb is what a relay does with an outbox: it leases lanes, reads their rows, and records what became of them.
//
// # Guarantees
//
// A lane has one owner, and everything the owner writes is fenced: one statement locks the lane's row, compares owner and epoch, and touches only what
// that returned. An owner that lost its lane, however late it notices, changes nothing.
//
// Read first: lease.go:Leases.Claim, then fetch.go:Log.Fetch, settle.go:Moves.Settle, progress.go:Log.Record.
package lanedb

import "github.com/oncebox/oncebox/internal/outboxdb"

// Lanes are those of one outbox.
type Lanes struct {
	Leases Leases
	Log    Log
	Moves  Moves
	Held   Held
}

// Leases is who owns which lane, and who is alive.
type Leases struct{ box *outboxdb.Handle }

// Log is the rows of the lanes that wait in their turn, and how far the lanes have come.
type Log struct{ box *outboxdb.Handle }

// Moves takes rows out of the log.
type Moves struct{ box *outboxdb.Handle }

// Held is the rows that wait outside of the log, and the keys that they block.
type Held struct{ box *outboxdb.Handle }

// Of returns the lanes of an outbox.
func Of(box *outboxdb.Handle) Lanes {
	return Lanes{Leases: Leases{box}, Log: Log{box}, Moves: Moves{box}, Held: Held{box}}
}
