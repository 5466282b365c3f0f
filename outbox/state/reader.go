// Package state shows what is in an outbox and who publishes it: statistics, lanes, relays, events that wait, and where an event is. It is for operators,
// and only reads.
//
//	stats, err := store.State().Stats(ctx)
//	lanes, err := store.State().Lanes(ctx)
//
// Read first: stats.go:Reader.Stats, lanes.go:Reader.Overdue.
package state

import (
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
)

// Reader reads the state of an outbox. It is safe for concurrent use.
type Reader struct{ box *outboxdb.Handle }

// New is for package outbox: see outbox.Store.State.
func New(box *outboxdb.Handle) *Reader { return &Reader{box} }

func seconds(s float64) time.Duration { return max(time.Duration(s*float64(time.Second)), 0) }
