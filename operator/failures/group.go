package failures

import (
	"time"

	"github.com/oncebox/oncebox/operator"
)

// Group is everything that fails, or has failed for good, with one fingerprint.
type Group struct {
	// Fingerprint identifies the group: 16 hexadecimal digits.
	Fingerprint string
	// Consumer is the consumer whose handler fails, "" for the relay. Topic is the topic that refuses the events, "" for a consumer. Type is the type of
	// the events.
	Consumer, Topic, Type string
	// Cause is the text that the errors share, with "…" where they differ.
	Cause string
	// Failing are the messages or events that are tried again: of each ordering key the first one. Dead are the dead letters.
	Failing, Dead Tally

	// Note is what an operator wrote about the group, by NotedBy at NotedAt. "": nothing.
	Note, NotedBy string
	NotedAt       time.Time
	// ArchivedBy has archived the group at ArchivedAt, for the reason ArchivedWhy. ArchivedAt is zero if nobody has.
	ArchivedBy, ArchivedWhy string
	ArchivedAt              time.Time

	upto time.Time // of the archive: the latest failure that the operator could see
}

// Tally counts the failures of one kind in a group.
type Tally struct {
	// Count is their number. More is true if there may be more: counting stops at a bound.
	Count int
	More  bool
	// First and Last are the times of the earliest and the latest failure, by the clock of the database: when a message began to fail for this cause, or
	// when a dead letter was given up.
	First, Last time.Time
	// Next is when the first of them is tried again. Zero: none is, or all are being tried now.
	Next time.Time
	// FailedBy are the processes whose tries failed last, with their versions, by name. Only messages of consumers that are tried again have them.
	FailedBy []string
	// Example is the latest one.
	Example Example
}

// Example is one failure of a group.
type Example struct {
	// ID is the id of the event or message.
	ID string
	// Ref identifies a message of a consumer. Its MessageKey is "" for an event of the outbox.
	Ref operator.MessageRef
	// Topic, Type and TenantID belong to the event or message. Key is its ordering key, "" without order.
	Topic, Type, TenantID, Key string
	// Holds is true if later events or messages of the key wait behind it.
	Holds bool
	// Attempts counts its tries.
	Attempts int
	// Error is its last error, at most 2 KiB of it. It may contain any text.
	Error string
	// FailedBy is the process whose try failed last, and its version if that is known. "": the process is not known, or it is an event.
	FailedBy string
}

// Last returns the time of the latest failure. It is zero for a group that has none any more, of which only the note is left.
func (g *Group) Last() time.Time { return later(g.Failing.Last, g.Dead.Last) }

// First returns the time of the earliest failure.
func (g *Group) First() time.Time {
	if g.Dead.Count == 0 || g.Failing.Count > 0 && g.Failing.First.Before(g.Dead.First) {
		return g.Failing.First
	}
	return g.Dead.First
}

// IsArchived reports whether the group is out of the way: an operator has archived it, and nothing has failed since.
func (g *Group) IsArchived() bool { return !g.ArchivedAt.IsZero() && !g.Last().After(g.upto) }

// IsBack reports whether the group was archived, and something has failed since.
func (g *Group) IsBack() bool { return !g.ArchivedAt.IsZero() && !g.IsArchived() }

// Example returns the latest failure of the group.
func (g *Group) Example() Example {
	if g.Failing.Count > 0 && !g.Failing.Last.Before(g.Dead.Last) {
		return g.Failing.Example
	}
	return g.Dead.Example
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
