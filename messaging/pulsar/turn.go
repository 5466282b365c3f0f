package pulsar

import (
	"cmp"
	"crypto/rand"
	"sync"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	clientbackoff "github.com/apache/pulsar-client-go/pulsar/backoff"
)

// How long a receiver that got early messages waits until it asks for the messages before them: after the broker's notification, and
// without one (the broker's own delay is a second by default). The client takes a second more to send the request.
const (
	turnPatience = 500 * time.Millisecond
	wordPatience = 3 * time.Second
)

// propEarly marks a message that arrived before its turn. The mark does not leave this process, and its value is a secret of the receiver:
// otherwise a producer could send the mark, and the message would be held back for ever.
const propEarly = "oncebox-early"

// turn keeps the order when a Failover subscription moves a partition to this receiver.
//
// After a move the broker (4.0.8) waits a second. Then it goes back to the first message that is not acknowledged, notifies the consumers
// which of them is active now, and reads. But if it finishes a write to the former consumer within that second, it reads on at once, for
// the new consumer, which then gets later messages of a key before earlier ones.
//
// So a message that arrives before the notification is early. It is neither delivered nor acknowledged, and comes again when the broker has
// gone back. The receiver notices that by a message whose position is not after the one before. The early read may also block the read
// after the notification, because the broker makes one read at a time: then no message comes until the next one is published. So the
// receiver asks the broker to go back once more, two seconds after the notification.
//
// Without early messages nothing is delayed: the notification comes before the first message anyway.
//
// Three cases remain that the broker does not notify: the early read ends at the moment in which the broker goes back, and the broker then
// forgets to go back; a partition moves away and back within the second; a consumer loses its connection, and with it the messages in its
// client, and is back before the consumer in between has got any further.
type turn struct {
	ours  bool        // the broker has notified it, or has gone back for this receiver
	doubt bool        // another receiver may have had the partition meanwhile
	last  position    // position of the last message that arrived; zero if none did
	ask   *time.Timer // timer of askLater; a timer that was replaced does nothing when it fires
}

// early reports whether a message came before its turn.
func (t *turn) early(at position) bool {
	first := t.last == position{}
	back := !first && at.compare(t.last) <= 0
	if t.doubt && !back && (first || !at.follows(t.last)) {
		t.ours = false
	}
	t.ours = t.ours || back
	t.doubt, t.last = false, at
	return !t.ours
}

// position is where a message lies in its partition.
type position struct {
	ledger, entry int64
	batch         int32
}

func (p position) compare(o position) int {
	return cmp.Or(cmp.Compare(p.ledger, o.ledger), cmp.Compare(p.entry, o.entry), cmp.Compare(p.batch, o.batch))
}

// follows reports whether p can be the next message after o.
func (p position) follows(o position) bool {
	if p.ledger == o.ledger {
		return p.entry-o.entry <= 1
	}
	return p.entry == 0
}

// turns holds the turn of each partition of a receiver. Pulsar's client calls it at each move.
type turns struct {
	early     string                                                                // the value of propEarly
	moves     bool                                                                  // partitions of the subscription can move (Failover)
	redeliver func(c pulsarclient.Consumer, partition int32, idle bool) (open bool) // idle: only if nothing of the partition is in hand
	began     func(partition int32)                                                 // called when a partition begins to be read for this receiver
	moved     func(partition int32)                                                 // called when a partition has moved to another receiver

	mu sync.Mutex
	of map[int32]*turn // by partition
}

func newTurns(moves bool) *turns {
	return &turns{early: rand.Text(), moves: moves, of: map[int32]*turn{}}
}

// reset forgets everything, before a new consumer begins.
func (ts *turns) reset() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range ts.of {
		t.ask = nil
	}
	ts.of = map[int32]*turn{}
}

// at returns the turn of a partition. The caller holds the mutex.
func (ts *turns) at(partition int32) *turn {
	t := ts.of[partition]
	if t == nil {
		t = &turn{}
		ts.of[partition] = t
	}
	return t
}

// arrived marks a message that is early. The client calls it in the order in which the broker sends messages and notifications. Later, when
// a message is received, that order is lost.
func (ts *turns) arrived(m pulsarclient.ConsumerMessage) {
	if !ts.moves {
		return
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	id := m.ID()
	t := ts.at(id.PartitionIdx())
	if !t.early(position{id.LedgerID(), id.EntryID(), id.BatchIdx()}) {
		t.ask = nil
		return
	}
	m.Properties()[propEarly] = ts.early
	if t.ask == nil {
		ts.askLater(t, m.Consumer, id.PartitionIdx(), wordPatience)
	}
}

func (ts *turns) isEarly(m pulsarclient.Message) bool { return m.Properties()[propEarly] == ts.early }

// askLater asks the broker to go back if no message, or only early messages, came until then. It repeats that if there were early messages,
// and asks once if there were none, because there may be no message at all. The broker ignores the request of a consumer that is not
// active.
func (ts *turns) askLater(t *turn, c pulsarclient.Consumer, partition int32, patience time.Duration) {
	var timer *time.Timer
	timer = time.AfterFunc(patience, func() {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		switch {
		case t.ask != timer:
		case !t.ours:
			if ts.redeliver(c, partition, false) {
				timer.Reset(wordPatience)
			}
		default:
			t.ask = nil
			ts.redeliver(c, partition, true) // not while messages are in hand, which would come twice
		}
	})
	t.ask = timer
}

// BecameActive implements [pulsarclient.ConsumerEventListener]: the broker has gone back and reads for this receiver.
func (ts *turns) BecameActive(c pulsarclient.Consumer, _ string, partition int32) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.began(partition)
	t := ts.at(partition)
	t.doubt = false
	if !t.ours && t.ask != nil {
		t.ask.Reset(turnPatience)
		return
	}
	t.ours = true
	ts.askLater(t, c, partition, firstSilence)
}

// BecameInactive implements [pulsarclient.ConsumerEventListener]: the partition has moved to another receiver, which also gets the messages
// that were early here.
func (ts *turns) BecameInactive(_ pulsarclient.Consumer, _ string, partition int32) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	*ts.at(partition) = turn{}
	ts.moved(partition)
}

// reconnect is called when a partition has lost its connection; the client does not say which. Until the receiver is back, another receiver
// has the partition. No notification says so; only missing messages show it.
func (ts *turns) reconnect() clientbackoff.Policy {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range ts.of {
		t.doubt = t.ours
	}
	return newReconnect()
}
