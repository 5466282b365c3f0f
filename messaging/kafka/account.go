package kafka

import "slices"

// account knows which messages of a partition are settled. The broker keeps one number for a partition, below which everything is settled. So the
// account commits the offset of the first message that is not settled, however many later ones are.
//
// An account lives from the assignment of the partition to this receiver until its end. It has no lock: the receiver's guards it.
type account struct {
	next      int64              // the offset that the broker sends next; -1: not known yet
	epoch     int32              // of the message before next: how often the partition had got a new leader; -1: not known
	open      map[int64]struct{} // messages that were received from the broker and are not settled
	order     []place            // the places of open, rising, and of some settled ones
	left      map[int64]struct{} // messages of open that are left at the broker
	inHand    int                // messages that the caller of Receive has
	committed int64              // what was committed last; -1: nothing
	ending    bool               // the partition moves to another consumer: nothing more is received
	gone      bool               // it has moved, so nothing is settled any more
}

// place is an offset, and the epoch of the message before it. By the epoch the broker recognizes an offset of messages that it has lost (KIP-320). Without
// it, a consumer would skip the messages that have taken their place.
type place struct {
	offset int64
	epoch  int32
}

func newAccount() *account {
	return &account{next: -1, epoch: -1, committed: -1, open: map[int64]struct{}{}, left: map[int64]struct{}{}}
}

// receive adds a message that has come from the broker. Offsets have gaps where a topic was compacted, or had transactions.
func (a *account) receive(offset int64, epoch int32) {
	a.open[offset] = struct{}{}
	a.order = append(a.order, place{offset, a.epoch})
	a.next, a.epoch = offset+1, epoch
}

// settle returns false if the message was settled before.
func (a *account) settle(offset int64) bool {
	if _, ok := a.open[offset]; !ok {
		return false
	}
	delete(a.open, offset)
	delete(a.left, offset)
	a.trim()
	return true
}

// trim drops settled messages from order: those at its beginning, and all of them when most are, because a message that stays open for long would
// keep every later one in memory.
func (a *account) trim() {
	for len(a.order) > 0 && !a.isOpen(a.order[0].offset) {
		a.order = a.order[1:]
	}
	if len(a.order) > 2*len(a.open)+1024 {
		a.order = slices.DeleteFunc(slices.Clone(a.order), func(p place) bool { return !a.isOpen(p.offset) })
	}
}

func (a *account) isOpen(offset int64) bool {
	_, ok := a.open[offset]
	return ok
}

// watermark returns the place below which everything is settled; its offset is -1 if nothing is known yet.
func (a *account) watermark() place {
	if len(a.order) > 0 {
		return a.order[0]
	}
	return place{a.next, a.epoch}
}
