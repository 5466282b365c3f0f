package pulsar

import (
	"cmp"
	"crypto/rand"
	"sync"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	clientbackoff "github.com/apache/pulsar-client-go/pulsar/backoff"
)

// How long a receiver that got early messages waits until it asks for the ones before them: from the broker's word on, and
// without it (the broker's own delay is a second, if nobody changed that). The client takes a second more to ask.
const (
	turnPatience = 500 * time.Millisecond
	wordPatience = 3 * time.Second
)

// propEarly marks a message that arrived before its turn. The mark does not leave this process, and its value is a secret of the
// receiver: a producer that could send it would have the message held off for ever.
const propEarly = "oncebox-early"

// turn keeps the order when a Failover subscription moves a partition to this receiver.
//
// The broker (4.0.8) lets a second pass after a move, then it goes back to the first message that is not acknowledged, tells
// the consumers which one is active now, and reads. But if what it was still writing to the consumer before is written within
// that second, it reads on at once, and for the new one, which so gets later messages of a key before earlier ones.
//
// So what arrives before the broker's word is early. It is neither delivered nor acknowledged, and comes again once the
// broker went back, which shows in a message that is not behind the one before. The early reading may also be in the way of
// the one after the word, for the broker reads one at a time: then nothing comes until somebody publishes. So the
// receiver asks the broker to go back once more, two seconds after the word.
//
// Without early messages nothing waits: the word comes before the first message anyway.
//
// Three cases remain about which the broker says nothing: the early reading ends in the moment in which the broker goes back,
// which it then forgets; a partition moves away and back within the second; a consumer lost its connection, and with it
// what waited in its client, and is back before the one between got any further.
type turn struct {
	ours  bool        // the broker said so, or went back for us
	doubt bool        // it may have been another one's meanwhile
	last  position    // of the last message that arrived; the zero position if none did
	ask   *time.Timer // of askLater; a timer that is not here any more does nothing
}

// early says whether a message came before its turn.
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

// follows says whether p can be the next message after o.
func (p position) follows(o position) bool {
	if p.ledger == o.ledger {
		return p.entry-o.entry <= 1
	}
	return p.entry == 0
}

// turns are those of a receiver's partitions. The client tells them of each move.
type turns struct {
	early     string                                                                // the value of propEarly
	moves     bool                                                                  // the subscription is one whose partitions move
	redeliver func(c pulsarclient.Consumer, partition int32, idle bool) (open bool) // idle: only if nothing of the partition is in hand
	moved     func(partition int32)                                                 // a partition is another receiver's

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

// arrived marks a message that is early. The client calls it in the order in which the broker sends messages and words,
// which is not known any more when a message is received.
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

// askLater has the broker go back if nothing but early messages came until then: again and again if there were some, once
// if there was none, for there may be nothing to come. A consumer that is not active asks in vain.
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
			ts.redeliver(c, partition, true) // what is in hand would come twice
		}
	})
	t.ask = timer
}

// BecameActive implements [pulsarclient.ConsumerEventListener]: the broker went back and reads for this receiver.
func (ts *turns) BecameActive(c pulsarclient.Consumer, _ string, partition int32) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.at(partition)
	t.doubt = false
	if !t.ours && t.ask != nil {
		t.ask.Reset(turnPatience)
		return
	}
	t.ours = true
	ts.askLater(t, c, partition, firstSilence)
}

// BecameInactive implements [pulsarclient.ConsumerEventListener]: the partition is another one's, and so is what was early
// here.
func (ts *turns) BecameInactive(_ pulsarclient.Consumer, _ string, partition int32) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	*ts.at(partition) = turn{}
	ts.moved(partition)
}

// reconnect is called when a partition lost its connection; the client does not say which one. Until the receiver is back
// the partition is another one's, and no word says so: only that messages are missing.
func (ts *turns) reconnect() clientbackoff.Policy {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range ts.of {
		t.doubt = t.ours
	}
	return newReconnect()
}
