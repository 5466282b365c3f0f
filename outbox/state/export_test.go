package state

import (
	"fmt"
	"time"
)

// EventsByAggregate is the statement of [Reader.EventsByAggregate].
var EventsByAggregate = eventsByAggregate

// LastMove is the statement of [Reader.Moved].
const LastMove = lastMove

// Age moves the last reading of a keeper into the past.
func (k *Keeper) Age(by time.Duration) { k.before.At = k.before.At.Add(-by) }

// LoadsStatement is the statement of [Reader.Loads], and the settings without which it runs.
func LoadsStatement() (string, []string) { return fmt.Sprintf(loads, Looked, mostLoads), backwards() }
