package memory

import (
	"maps"
	"slices"
	"strings"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
)

// keySlots is the number of groups into which a KeyShared subscription divides the keys. A group moves to another receiver as a whole.
const keySlots = 64

// subscription is a position in a topic. It outlives its consumers. Its messages lie in slots, and each slot belongs to one receiver: a slot is a
// partition with Failover, and a group of keys with KeyShared. A Shared subscription has one slot, which all receivers share.
type subscription struct {
	topic     *topic
	kind      messaging.SubscriptionType
	owner     adapters.Owner // as far as subscribers have named it
	slots     []*slot
	receivers []*receiver // by name, so that the same receivers get the same slots in whatever order they joined
	settled   int64       // number of settled messages so far
}

// delivery is one message of one subscription, from its arrival until it is settled.
type delivery struct {
	entry    *entry
	slot     *slot
	attempts int
	settled  bool
	left     bool      // its holder will neither settle it nor give it back, see messaging.LeaveAtBroker
	holder   *receiver // nil while the message waits
}

// slot holds the messages that go to one receiver at a time: waiting ones and those in its hands.
type slot struct {
	sub     *subscription
	index   int
	owner   *receiver
	waiting []*delivery // ordered by position in the topic
	out     map[*delivery]bool
}

// become changes the type of the subscription, and with it the slots. It is only called while there are no receivers, so all messages wait.
func (s *subscription) become(kind messaging.SubscriptionType) {
	n := map[messaging.SubscriptionType]int{
		messaging.Failover: s.topic.broker.cfg.Partitions, messaging.KeyShared: keySlots, messaging.Shared: 1,
	}[kind]
	before := s.slots
	s.kind, s.slots = kind, make([]*slot, n)
	for i := range s.slots {
		s.slots[i] = &slot{sub: s, index: i, out: map[*delivery]bool{}}
	}
	for _, old := range before {
		for _, d := range old.waiting {
			s.put(d)
		}
	}
}

// add delivers a message of the topic, again if it was delivered before.
func (s *subscription) add(e *entry) {
	e.unsettled++
	s.put(&delivery{entry: e})
}

// put places d among the waiting messages of its slot, at its position in the topic.
func (s *subscription) put(d *delivery) {
	// The hash chooses the slot, so all messages of a key lie in one slot and keep their order.
	d.slot = s.slots[d.entry.hash%uint32(len(s.slots))] //nolint:gosec // few
	d.slot.insert(d)
	s.wake(d.slot)
}

// insert keeps the order by position. A message that was given back goes before the messages that were published after it.
func (l *slot) insert(d *delivery) {
	l.waiting = adapters.InOrder(l.waiting, d, func(o *delivery) uint64 { return o.entry.position })
}

// wake wakes every receiver that may take from the slot. A receiver that finds nothing waits again.
func (s *subscription) wake(l *slot) {
	for _, r := range s.receivers {
		if l.owner == r || s.kind == messaging.Shared {
			r.wake()
		}
	}
}

// join adds a receiver in the order of names and divides the slots anew.
func (s *subscription) join(r *receiver) {
	at, _ := slices.BinarySearchFunc(s.receivers, r.name, func(o *receiver, name string) int { return strings.Compare(o.name, name) })
	s.receivers = slices.Insert(s.receivers, at, r)
	s.share()
}

// leave removes a receiver. The messages in its hands wait again.
func (s *subscription) leave(r *receiver) {
	r.close()
	s.receivers = slices.DeleteFunc(s.receivers, func(o *receiver) bool { return o == r })
	for _, l := range s.slots {
		if l.owner == r {
			l.owner = nil
		}
		s.takeBack(l, r)
	}
	s.share()
}

// share gives every slot to a receiver. Failover and KeyShared differ here, see assign.
func (s *subscription) share() {
	if s.kind == messaging.Shared || len(s.receivers) == 0 {
		return
	}
	for _, l := range s.slots {
		s.assign(l)
	}
}

// assign gives the slot to the receiver that should own it.
//
// Messages may still be in the hands of the owner before. With Failover the slot moves at once and these messages are delivered again. Pulsar does
// the same, which is why package inbox locks each key. With KeyShared the slot moves only when they are settled.
func (s *subscription) assign(l *slot) {
	next := s.receivers[l.index%len(s.receivers)]
	if next == l.owner || s.kind == messaging.KeyShared && len(l.out) > 0 {
		return
	}
	if l.owner != nil {
		s.takeBack(l, l.owner)
	}
	l.owner = next
	s.wake(l)
}

// takeBack puts all messages of the slot that r has in hand back among the waiting ones.
func (s *subscription) takeBack(l *slot, r *receiver) {
	for d := range l.out {
		if d.holder == r {
			s.giveBack(d)
		}
	}
}

// giveBack counts no attempt here: take counts each delivery.
func (s *subscription) giveBack(d *delivery) {
	delete(d.slot.out, d)
	d.holder = nil
	s.put(d)
}

// take returns the oldest waiting message of the receiver's slots, now in its hands; nil if none waits. Over several
// slots the oldest comes first, so that no slot of a receiver starves.
func (s *subscription) take(r *receiver) *delivery {
	var from *slot
	for _, l := range s.slots {
		if l.owner != r && s.kind != messaging.Shared || len(l.waiting) == 0 {
			continue
		}
		if from == nil || l.waiting[0].entry.position < from.waiting[0].entry.position {
			from = l
		}
	}
	if from == nil {
		return nil
	}
	d := from.waiting[0]
	// The array behind the slice would keep the delivery, and with it the message, in memory.
	from.waiting[0] = nil
	from.waiting = from.waiting[1:]
	from.out[d] = true
	d.holder, d.left = r, false
	d.attempts++
	return d
}

// settle removes the message for good, even if it was taken from its receiver meanwhile and waits for another one.
func (s *subscription) settle(d *delivery) {
	if d.settled {
		return
	}
	d.settled = true
	s.settled++
	d.entry.unsettled--
	if d.holder == nil {
		d.slot.waiting = slices.DeleteFunc(d.slot.waiting, func(w *delivery) bool { return w == d })
	}
	delete(d.slot.out, d)
	d.holder = nil
	// A KeyShared slot may have waited for this message to move to its new owner.
	if s.kind == messaging.KeyShared && len(d.slot.out) == 0 && len(s.receivers) > 0 {
		s.assign(d.slot)
	}
	s.topic.trim()
}

// backlog counts the messages that r is responsible for: with Failover those of its own slots, otherwise those of the
// whole subscription, because any of them may come to r.
func (s *subscription) backlog(r *receiver) messaging.Backlog {
	b := messaging.Backlog{Topic: s.topic.name, Settled: s.settled}
	for _, l := range s.slots {
		if s.kind != messaging.Failover || l.owner == r {
			left := l.left()
			b.Messages += int64(len(l.waiting)+len(l.out)) - left
			b.Left += left
		}
	}
	return b
}

// state counts all messages of the subscription that are not settled.
func (s *subscription) state() messaging.SubscriptionState {
	out := messaging.SubscriptionState{Settled: s.settled, Consumers: len(s.receivers)}
	for _, l := range s.slots {
		n := len(l.waiting) + len(l.out)
		out.Messages += int64(n)
		for _, d := range l.all() {
			if out.Oldest.IsZero() || d.entry.at.Before(out.Oldest) {
				out.Oldest = d.entry.at
			}
		}
		if n > 0 && len(s.receivers) == 0 {
			out.Unattended++
		}
	}
	return out
}

// all returns the messages that are not settled, in no order.
func (l *slot) all() []*delivery {
	return slices.AppendSeq(slices.Clone(l.waiting), maps.Keys(l.out))
}

// left counts the messages that their holder leaves at the broker.
func (l *slot) left() (n int64) {
	for d := range l.out {
		if d.left {
			n++
		}
	}
	return n
}
