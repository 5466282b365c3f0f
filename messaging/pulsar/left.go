package pulsar

import (
	"github.com/oncebox/oncebox/messaging"
)

// leftPatience is how often a silent receiver asks for its other partitions before it asks for one with messages that were left: more
// than a minute. What was left comes again with what the broker may have lost.
const leftPatience = 4

// entryOf is where the broker stores a message, or the batch with the message in it.
type entryOf struct {
	partition     int32
	ledger, entry int64
}

// left are the messages that the consumer left at the broker, by entry and place in their batch. The broker counts entries.
type left map[entryOf]map[int32]struct{}

// entry returns where the message is stored, and its place there.
func (rc *receipt) entry() (e entryOf, place int32) {
	id := rc.message.ID()
	return entryOf{id.PartitionIdx(), id.LedgerID(), id.EntryID()}, id.BatchIdx()
}

func (l left) add(rc *receipt) {
	e, place := rc.entry()
	if l[e] == nil {
		l[e] = map[int32]struct{}{}
	}
	l[e][place] = struct{}{}
}

func (l left) remove(rc *receipt) {
	if len(l) == 0 {
		return
	}
	e, place := rc.entry()
	delete(l[e], place)
	if len(l[e]) == 0 {
		delete(l, e)
	}
}

// drop forgets a partition that is another receiver's.
func (l left) drop(partition int32) {
	for e := range l {
		if e.partition == partition {
			delete(l, e)
		}
	}
}

// in counts the entries of a partition.
func (l left) in(partition int32) (n int64) {
	for e := range l {
		if e.partition == partition {
			n++
		}
	}
	return n
}

// Leave implements [messaging.BacklogReceiver]. The message is not in hand any more, so that what looks after a partition that has
// stopped does so again.
func (r *receiver) Leave(m *messaging.Message) {
	rc, err := r.receipt(m, "leave")
	if err != nil {
		return // it comes again
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.renewing || rc.consumer != r.consumer || rc.settled {
		return
	}
	rc.settled = true
	r.left.add(rc)
	r.silence.inHand[rc.message.ID().PartitionIdx()]--
	r.leak(rc.message)
}
