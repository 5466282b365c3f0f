package projector

import (
	"strconv"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// States of a block, as in the table outbox_block.
const (
	stateFailed   = "failed"
	stateDraining = "draining"
	stateDead     = "dead"
)

// batch is the rows of one fetch on their way through sort, publish, judge and settle.
type batch struct {
	rules *rules

	// What the fetch brought, by lane.
	lanes   map[int16]*lane
	inTurn  map[int16]bool  // the rows are the heads of these lanes: no unsent row lies before them
	low     int64           // the mark when the fetch began
	short   shortcut        // the shortcut when the fetch began
	upto    map[int16]int64 // the number at which the fetch ended, if it brought all rows up to there
	fetched map[int16]int   // how many rows came
	cut     map[int16]bool  // lanes with a row that did not fit into Config.BatchBytes
	first   map[int16]int64 // the lowest sequence number
	last    map[int16]int64 // the highest sequence number

	// What sort decided.
	send  []*outboxdb.Row
	errs  map[int]error   // the errors of send after the publication, by index
	apart []*outboxdb.Row // rows that are sent apart from the others, see isolate

	// What became of the rows.
	published []*outboxdb.Row
	timed     []outboxdb.RowID                 // delayed rows without an ordering key, which sort has found
	outcomes  map[int16][]lanedb.Outcome       // of the rows that leave the lane without having been published
	rows      map[outboxdb.RowID]*outboxdb.Row // the rows of the outcomes
	blocked   map[int16]map[string]string      // keys that the outcomes block, with the state of the block, by lane
	left      map[int16]bool                   // lanes in which rows stay for another try
	stays     map[string]bool                  // keys of rows that were sent and stay
	moved     int
	refused   []*outboxdb.Row // rows that the broker refused, whether they wait or are dead
	trouble   error           // why rows stay, if the broker is the reason
}

func newBatch(lanes map[int16]*lane, by *rules) *batch {
	return &batch{
		lanes: lanes, rules: by, inTurn: map[int16]bool{}, fetched: map[int16]int{}, cut: map[int16]bool{}, first: map[int16]int64{}, last: map[int16]int64{},
		outcomes: map[int16][]lanedb.Outcome{}, rows: map[outboxdb.RowID]*outboxdb.Row{},
		blocked: map[int16]map[string]string{}, left: map[int16]bool{}, stays: map[string]bool{},
	}
}

// sort decides what happens to each row. A row that must wait goes to the held rows. A row that may have killed a
// projector is sent later and apart. All other rows are sent.
//
// If rows of one key go different ways, the second way has to wait: the first row that goes another way than its
// predecessor, and all later rows of the key, stay for the next fetch. That includes a row that has expired or must
// wait. It is not known yet whether the row in front of it will leave, and a block made now would hold that row
// behind its own successor.
func (b *batch) sort(rows []outboxdb.Row) {
	ways := map[string]string{}
	stays := map[string]bool{}
	for i := range rows {
		r := &rows[i]
		if r.Cut {
			b.cut[r.Lane], b.left[r.Lane] = true, true
			continue
		}
		b.fetched[r.Lane]++
		if b.last[r.Lane] = r.Sequence; b.first[r.Lane] == 0 {
			b.first[r.Lane] = r.Sequence
		}
		switch {
		case r.Key != "" && stays[r.Key]:
			b.left[r.Lane] = true
		case b.isBlocked(r):
			b.follow(r)
		case r.Key != "" && ways[r.Key] != "" && ways[r.Key] != b.way(r):
			b.left[r.Lane] = true
			stays[r.Key] = true
		case r.IsTimed(): // also when its time has come: a transaction may be about to cancel it, see lanedb.Moves.Delay
			b.timed = append(b.timed, outboxdb.RowID{Lane: r.Lane, Seq: r.Sequence})
		case r.Expired:
			b.die(r, errExpired.Error(), b.rules.blocksExpired)
		case r.Waits:
			b.add(r, lanedb.Outcome{Seq: r.Sequence, Verdict: lanedb.Delayed}, stateFailed)
		default:
			ways[r.Key] = b.way(r)
			b.put(r)
		}
	}
}

// way returns a group name. Rows of one key may be sent together only if their groups are equal, because only then
// their order is kept:
//
//   - The broker keeps the order within a topic and a routing key.
//   - Rows that were in flight are sent after all other rows, so they are a group of their own.
//   - Rows that were in flight and are counted are sent one by one, so each is a group of its own.
//   - Rows that are not sent at all, because they have expired or wait, are a group too.
//
// The name is never "".
func (b *batch) way(r *outboxdb.Row) string {
	place := r.Topic + "\x00" + r.RoutingKey
	switch {
	case r.Expired || r.Waits:
		return "\x00held"
	case !b.wasInFlight(r):
		return place
	case r.Crashes == 0:
		return place + "\x00apart"
	default:
		return place + "\x00" + strconv.FormatInt(r.Sequence, 10)
	}
}

func (b *batch) wasInFlight(r *outboxdb.Row) bool { return b.lanes[r.Lane].inFlight.has(r.Sequence) }

// put adds a row to the rows that are sent. A row that was in flight goes apart. Its lane then counts as left, so
// that the lane's position does not move beyond the row before it is out.
func (b *batch) put(r *outboxdb.Row) {
	if b.wasInFlight(r) {
		b.apart = append(b.apart, r)
		b.left[r.Lane] = true
		return
	}
	b.send = append(b.send, r)
}

// isBlocked reports whether the key of a row is blocked: in the database, or by an earlier row of this batch.
func (b *batch) isBlocked(r *outboxdb.Row) bool {
	if r.Key == "" {
		return false
	}
	_, before := b.lanes[r.Lane].blocks[r.Key]
	_, now := b.blocked[r.Lane][r.Key]
	return before || now
}

// follow moves a row behind the block of its key.
func (b *batch) follow(r *outboxdb.Row) {
	b.add(r, lanedb.Outcome{Seq: r.Sequence, Verdict: lanedb.Follower}, "")
}

// die makes the row a dead letter. blocks reports whether such a row of a topic blocks its key.
func (b *batch) die(r *outboxdb.Row, reason string, blocks func(topic string) bool) {
	if !blocks(r.Topic) {
		b.add(r, lanedb.Outcome{Seq: r.Sequence, Verdict: lanedb.Abandoned, Error: reason}, "")
		return
	}
	b.add(r, lanedb.Outcome{Seq: r.Sequence, Verdict: lanedb.Dead, Error: reason}, stateDead)
}

// add notes the outcome of a row. blocks is the state of the block that the row leaves on its key; "": none.
func (b *batch) add(r *outboxdb.Row, o lanedb.Outcome, blocks string) {
	b.outcomes[r.Lane] = append(b.outcomes[r.Lane], o)
	b.rows[outboxdb.RowID{Lane: r.Lane, Seq: r.Sequence}] = r
	if r.Key == "" || blocks == "" {
		return
	}
	if b.blocked[r.Lane] == nil {
		b.blocked[r.Lane] = map[string]string{}
	}
	b.blocked[r.Lane][r.Key] = blocks
}

// judge decides about each row that was sent, by the error that the publisher returned for it.
//
// Rows of a key come in order. Once one of them stays for another try, the later rows stay as well; once one is held
// or dead, they follow it. A publisher reports such rows as failed itself. If it reports a later row as confirmed,
// the order is broken already and cannot be mended. The row is settled all the same, because sending it again would
// only add a duplicate.
func (b *batch) judge() {
	for i, r := range b.send {
		err := b.errs[i]
		switch class := classify(err); {
		case err == nil:
			b.published = append(b.published, r)
		case r.Key != "" && b.stays[r.Key]:
			b.left[r.Lane] = true
		case b.isBlocked(r):
			b.follow(r)
		case class == classMessage:
			b.refused = append(b.refused, r)
			if wait, dead := b.rules.refusal(r, err); dead {
				b.die(r, err.Error(), b.rules.blocksDead)
				b.stays[r.Key] = b.rules.goesOn(r.Topic) // the publisher held back the rows behind it, they are sent again
			} else {
				b.add(r, lanedb.Outcome{Seq: r.Sequence, Verdict: lanedb.Refused, Wait: wait, Error: err.Error()}, stateFailed)
			}
		default:
			b.stays[r.Key] = true
			b.left[r.Lane] = true
			if class == classBroker && b.trouble == nil {
				b.trouble = err // the first error stands for all of them
			}
		}
	}
}

// advance moves the positions of lanes in which no row was left behind. A lane that gave no row is empty up to the
// mark. The positions move in memory only; the next batch writes them down. If the process dies before that, the next
// owner reads some empty stretches again, and no more.
func (b *batch) advance(group []*lane) {
	for _, l := range group {
		n := l.lease.Lane
		l.inFlight.passed(b.first[n])
		if l.located && !b.left[n] {
			l.at = l.at.Advance(b.end(n, b.low))
			l.short.advance(b.short, b.end(n, b.short.to))
		}
	}
}

// end returns the number up to which a lane is done if no row of it was left. It is never beyond the mark, because
// rows may still appear there. If the fetch ended before the end of the lane, it is never beyond the last row that
// came, because the rows behind it were not read.
func (b *batch) end(n int16, mark int64) int64 {
	if upto, all := b.upto[n]; all {
		return min(mark, upto)
	}
	if last, some := b.last[n]; some {
		return min(mark, last)
	}
	return mark
}

// leasesOf returns the leases of the lanes that the rows are in.
func leasesOf(lanes map[int16]*lane, ids []outboxdb.RowID) (leases []lanedb.Lease) {
	seen := map[int16]bool{}
	for _, id := range ids {
		if !seen[id.Lane] {
			seen[id.Lane] = true
			leases = append(leases, lanes[id.Lane].lease)
		}
	}
	return leases
}
