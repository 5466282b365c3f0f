// Package lanedb has the statements of a relay on an outbox: it leases lanes, reads their rows, and records what
// became of the rows.
//
// # Guarantees
//
// A lane has one owner, and everything that the owner writes is fenced: the statement itself locks the row of the
// lane, compares owner and epoch, and touches only lanes that passed. An owner that has lost its lane changes
// nothing, however late it notices.
//
// Read first: lease.go:Leases.Claim, then fetch.go:Log.Fetch, settle.go:Moves.Settle, progress.go:Log.Record.
package lanedb

import "github.com/oncebox/oncebox/internal/outboxdb"

// Lanes has all that a relay does with one outbox.
type Lanes struct {
	Leases Leases
	Log    Log
	Moves  Moves
	Held   Held
}

// Leases records which projector owns which lane, and which projectors are alive.
type Leases struct{ box *outboxdb.Handle }

// Log reads the rows of the lanes that wait in their turn, and records how far the lanes have come.
type Log struct{ box *outboxdb.Handle }

// Moves takes rows out of the log.
type Moves struct{ box *outboxdb.Handle }

// Held reads and writes the rows that wait outside of the log, and the keys that they block.
type Held struct{ box *outboxdb.Handle }

// Of returns the lanes of an outbox.
func Of(box *outboxdb.Handle) Lanes {
	return Lanes{Leases: Leases{box}, Log: Log{box}, Moves: Moves{box}, Held: Held{box}}
}
