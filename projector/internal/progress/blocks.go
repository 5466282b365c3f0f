package progress

import (
	"maps"

	"github.com/oncebox/oncebox/internal/lanedb"
)

// States of a block, as in the table outbox_block.
const (
	stateFailed = "failed"
	stateDead   = "dead"
)

// Blocks are the blocked ordering keys of a lane: a copy of outbox_block as of one moment. A row of a blocked key must
// not be sent, and a held row may be sent only while its key is blocked.
//
// The copy is unknown until it is read, and after each write of which it is not certain what it did. Nothing of the lane
// is published then. An operator may change the blocks at any time. Each such change raises a counter of the lane, and
// every write to held rows compares it.
type Blocks struct {
	change  int64             // the operators' counter at which the blocks were read; -1: they are unknown
	doubted int64             // the counter at which they were last doubted and read again
	states  map[string]string // ordering key -> state
	stalled []string          // blocked keys without a row that is due or ever will be: an operator discarded the head
}

func unknownBlocks() Blocks { return Blocks{change: -1, doubted: -1} }

// Load takes the blocks that were read from the database.
func (b *Blocks) Load(from lanedb.LaneBlocks) {
	b.change, b.states, b.stalled = from.Change, map[string]string{}, nil
	for _, k := range from.Blocks {
		b.states[k.Key] = k.State
		if k.Stalled && k.State != stateDead {
			b.stalled = append(b.stalled, k.Key)
		}
	}
}

// AreKnown reports whether the blocks are known.
func (b *Blocks) AreKnown() bool { return b.change >= 0 }

// Change returns the operators' counter at which the blocks were read. It is -1 if they are unknown, which no counter is:
// a write that compares it does nothing.
func (b *Blocks) Change() int64 { return b.change }

// Forget makes the blocks unknown.
func (b *Blocks) Forget() { b.change = -1 }

// Doubt makes the blocks unknown, because a due row does not fit them: an operator has probably changed the lane since
// they were read. It reports whether it did that. It does so once for each count of the operators' counter. If the
// counter is the same after the blocks were read again, no operator acted: somebody changed the row by hand, under a
// block that holds it. The row then stays until an operator acts, and the same blocks are not read again and again.
func (b *Blocks) Doubt() bool {
	if !b.AreKnown() || b.change == b.doubted {
		return false
	}
	b.doubted = b.change
	b.Forget()
	return true
}

func (b *Blocks) has(key string) bool {
	_, blocked := b.states[key]
	return blocked
}

// MaySend reports whether a held row of the key may be sent: the key is blocked, and not by a dead letter.
func (b *Blocks) MaySend(key string) bool {
	state, blocked := b.states[key]
	return blocked && state != stateDead
}

// Kill records that the head of the key is a dead letter.
func (b *Blocks) Kill(key string) { b.states[key] = stateDead }

// Lift removes the block of a key of which no row is left.
func (b *Blocks) Lift(key string) { delete(b.states, key) }

// add adds blocks that were written.
func (b *Blocks) add(written map[string]string) { maps.Copy(b.states, written) }

// TakeStalled returns stalled keys, at most so many, and forgets them: they are released, or the blocks are read again.
func (b *Blocks) TakeStalled(most int) (keys []string) {
	n := min(len(b.stalled), most)
	keys, b.stalled = b.stalled[:n], b.stalled[n:]
	return keys
}
