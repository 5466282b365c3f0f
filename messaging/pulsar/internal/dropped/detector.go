// Package dropped finds messages that Pulsar's client has received and thrown away while the broker believes that the consumer has them.
//
// The client (0.21.0) empties its queue before it connects again, because the broker delivers these messages again over a new connection. But if an
// attempt to connect fails at the wrong moment, the client remembers that failure, and after a later attempt has succeeded it connects once more,
// although the connection is alive. It empties its queue again, and the broker, which knows the consumer already, delivers nothing again: the messages
// stay away until the connection is really lost, and later messages of their keys come first. The client reports nothing of that.
//
// Read first: detector.go:Detector.
package dropped

import (
	"cmp"
	"sync"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
)

// Detector remembers which messages have arrived at the client and were not taken out of its queue. The queue of a partition keeps their order. So if a
// message is taken before a message that arrived earlier, the client has dropped that one. The zero value is ready.
type Detector struct {
	mu       sync.Mutex
	consumer pulsarclient.Consumer // the consumer of the partitions
	of       map[int32]*partition
}

type partition struct {
	arrived uint64
	numbers map[place]uint64 // of the last arrival of each message that was not taken
	queue   []arrival        // in the order of the arrivals; some were taken, or have arrived once more
}

type arrival struct {
	place
	number uint64
}

type place struct {
	ledger, entry int64
	batch         int32
}

func (p place) isBefore(o place) bool {
	return cmp.Or(cmp.Compare(p.ledger, o.ledger), cmp.Compare(p.entry, o.entry), cmp.Compare(p.batch, o.batch)) < 0
}

func placeOf(id pulsarclient.MessageID) place {
	return place{id.LedgerID(), id.EntryID(), id.BatchIdx()}
}

// Arrive records that a message has come from the broker. The first message of another consumer makes it forget those of the consumer before.
func (d *Detector) Arrive(m pulsarclient.ConsumerMessage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil || d.consumer != m.Consumer {
		d.consumer, d.of = m.Consumer, map[int32]*partition{}
	}
	p := d.of[m.ID().PartitionIdx()]
	if p == nil {
		p = &partition{numbers: map[place]uint64{}}
		d.of[m.ID().PartitionIdx()] = p
	}
	at := placeOf(m.ID())
	p.arrived++
	p.numbers[at] = p.arrived
	p.queue = append(p.queue, arrival{at, p.arrived})
}

// Take records that a message was taken out of the queue. It reports whether the client has dropped a message before it that has not come again.
// Messages that the broker delivers once more begin with the earliest one, so these count only if they are missing when a message behind them is taken.
func (d *Detector) Take(id pulsarclient.MessageID) (dropped bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.of[id.PartitionIdx()]
	if p == nil {
		return false
	}
	taken := arrival{placeOf(id), p.numbers[placeOf(id)]}
	delete(p.numbers, taken.place)
	p.trim()
	return p.overtaken(taken)
}

// overtaken reports whether a message waits that is before the given one in the topic, and arrived before it. Unless messages were dropped, the loop ends
// at once.
func (p *partition) overtaken(by arrival) bool {
	for _, a := range p.queue {
		if a.number >= by.number {
			return false
		}
		if p.isWaiting(a) && a.isBefore(by.place) {
			return true
		}
	}
	return false
}

// isWaiting reports whether the message of an arrival was not taken, and has not arrived once more.
func (p *partition) isWaiting(a arrival) bool { return p.numbers[a.place] == a.number }

// trim removes what no longer waits from the front of the queue.
func (p *partition) trim() {
	for len(p.queue) > 0 && !p.isWaiting(p.queue[0]) {
		p.queue = p.queue[1:]
	}
}

// Forget forgets what has arrived of a partition. Another consumer may have it by now.
func (d *Detector) Forget(partition int32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.of, partition)
}

// Reset forgets everything.
func (d *Detector) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.consumer, d.of = nil, nil
}

// Waiting returns how many messages have arrived and were not taken. Of these, the client has dropped all if its queue is empty.
func (d *Detector) Waiting() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.of {
		n += len(p.numbers)
	}
	return n
}
