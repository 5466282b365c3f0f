package memory

import (
	"slices"
	"strings"

	"github.com/oncebox/oncebox/messaging"
)

// keySlots is the number of groups of keys of a Key_Shared subscription; a group moves as a whole.
const keySlots = 64

// subscription is a position in a topic that outlives its consumers. Its messages lie in slots, and a slot belongs to
// one receiver: a partition (Failover) or a group of keys (KeyShared). With Shared there is one slot, and it belongs to
// everybody.
type subscription struct {
	topic  *topic
	kind   messaging.SubscriptionType
	source string // the service that it belongs to, as far as one has said so
	// installation is its database, likewise.
	installation string
	slots        []*slot
	receivers    []*receiver // by name: the same ones share the slots in the same way, in whatever order they came
	settled      int64       // how many messages, by now
}

// delivery is a message on its way to the consumers of one subscription.
type delivery struct {
	entry    *entry
	slot     *slot
	attempts int
	settled  bool
	left     bool      // its holder neither settles it nor gives it back
	holder   *receiver // nil while it waits
}

// slot holds the deliveries that go to one receiver at a time.
type slot struct {
	sub     *subscription
	index   int
	owner   *receiver
	waiting []*delivery // by position
	out     map[*delivery]bool
}

// become gives the subscription another type. It has no receivers, so all its messages wait.
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

// add delivers e, once more if it was delivered before.
func (s *subscription) add(e *entry) {
	e.unsettled++
	s.put(&delivery{entry: e})
}

// put has d wait in its slot, in its place.
func (s *subscription) put(d *delivery) {
	d.slot = s.slots[d.entry.hash%uint32(len(s.slots))] //nolint:gosec // few
	d.slot.insert(d)
	s.wake(d.slot)
}

func (l *slot) insert(d *delivery) {
	at, _ := slices.BinarySearchFunc(l.waiting, d.entry.position, func(w *delivery, position uint64) int {
		if w.entry.position < position {
			return -1
		}
		return 1
	})
	l.waiting = slices.Insert(l.waiting, at, d)
}

func (s *subscription) wake(l *slot) {
	for _, r := range s.receivers {
		if l.owner == r || s.kind == messaging.Shared {
			r.wake()
		}
	}
}

func (s *subscription) join(r *receiver) {
	at, _ := slices.BinarySearchFunc(s.receivers, r.name, func(o *receiver, name string) int { return strings.Compare(o.name, name) })
	s.receivers = slices.Insert(s.receivers, at, r)
	s.share()
}

// leave takes r away, and what it holds back.
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

// share gives every slot its owner.
func (s *subscription) share() {
	if s.kind == messaging.Shared || len(s.receivers) == 0 {
		return
	}
	for _, l := range s.slots {
		s.assign(l)
	}
}

// assign gives the slot to the receiver whose turn it is.
//
// The two ordered types differ in what happens to messages that another receiver works on. A partition moves at once and
// they are delivered again; that is how Pulsar does it, and why the inbox locks per key. A group of keys stays where it
// is until they are settled.
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

// takeBack puts all that r holds of the slot back where it was.
func (s *subscription) takeBack(l *slot, r *receiver) {
	for d := range l.out {
		if d.holder == r {
			s.giveBack(d)
		}
	}
}

func (s *subscription) giveBack(d *delivery) {
	delete(d.slot.out, d)
	d.holder = nil
	s.put(d)
}

// take hands r the oldest message that it may have.
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
	from.waiting[0] = nil
	from.waiting = from.waiting[1:]
	from.out[d] = true
	d.holder, d.left = r, false
	d.attempts++
	return d
}

// settle is final, also if d was taken from its receiver in the meantime and waits for another one.
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
	if s.kind == messaging.KeyShared && len(d.slot.out) == 0 && len(s.receivers) > 0 {
		s.assign(d.slot)
	}
	s.topic.trim()
}

// backlog is what r has to bring forward.
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

// state is what waits for the subscription.
func (s *subscription) state() messaging.SubscriptionState {
	out := messaging.SubscriptionState{Settled: s.settled, Consumers: len(s.receivers)}
	for _, l := range s.slots {
		n := len(l.waiting) + len(l.out)
		out.Messages += int64(n)
		if n > 0 && len(s.receivers) == 0 {
			out.Unattended++
		}
	}
	return out
}

// left counts the deliveries that their holder leaves.
func (l *slot) left() (n int64) {
	for d := range l.out {
		if d.left {
			n++
		}
	}
	return n
}
