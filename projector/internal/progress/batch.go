package progress

import (
	"strconv"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// Batch is the rows of one fetch on their way through Sort, the publication, Judge and the settle.
type Batch struct {
	rules *Rules

	// What the fetch brought, by lane.
	Lanes   map[int16]*Lane
	InTurn  map[int16]bool  // the rows are the heads of these lanes: no unsent row lies before them
	Low     int64           // the mark when the fetch began
	Short   Shortcut        // the shortcut when the fetch began
	upto    map[int16]int64 // the number at which the fetch ended, if it brought all rows up to there
	fetched map[int16]int   // how many rows came
	Cut     map[int16]bool  // lanes with a row that did not fit into Config.BatchBytes
	first   map[int16]int64 // the lowest sequence number
	last    map[int16]int64 // the highest sequence number

	// What Sort decided.
	Send  []*outboxdb.Row
	Apart []*outboxdb.Row // rows that are sent apart from the others, because they may kill the process

	// The results of publishing the rows.
	Published []*outboxdb.Row
	Timed     []outboxdb.RowID                 // delayed rows without an ordering key, which Sort has found
	Outcomes  map[int16][]lanedb.Outcome       // of the rows that leave the lane without having been published
	rows      map[outboxdb.RowID]*outboxdb.Row // the rows of the outcomes
	blocked   map[int16]map[string]string      // keys that the outcomes block, with the state of the block, by lane
	Left      map[int16]bool                   // lanes in which rows stay for another try
	Stay      int                              // how many rows were sent and stay for another try
	stays     map[string]bool                  // keys of rows that were sent and stay
	Moved     int
	Refused   []*outboxdb.Row // rows that the broker refused, whether they wait or are dead
	Trouble   error           // why rows stay, if the broker is the reason
}

// NewBatch returns a batch for these lanes, without rows.
func NewBatch(lanes map[int16]*Lane, by *Rules) *Batch {
	return &Batch{
		Lanes: lanes, rules: by, InTurn: map[int16]bool{}, fetched: map[int16]int{}, Cut: map[int16]bool{}, first: map[int16]int64{}, last: map[int16]int64{},
		Outcomes: map[int16][]lanedb.Outcome{}, rows: map[outboxdb.RowID]*outboxdb.Row{},
		blocked: map[int16]map[string]string{}, Left: map[int16]bool{}, stays: map[string]bool{},
	}
}

// Sort decides what happens to each row. A row that must wait goes to the held rows. A row that may have killed a
// projector is sent later and apart. All other rows are sent.
//
// If rows of one key go different ways, the second way has to wait: the first row that goes another way than its
// predecessor, and all later rows of the key, stay for the next fetch. That includes a row that has expired or must
// wait. It is not known yet whether the row in front of it will leave, and a block made now would hold that row
// behind its own successor.
func (b *Batch) Sort(rows []outboxdb.Row) {
	ways := map[string]string{}
	stays := map[string]bool{}
	for i := range rows {
		r := &rows[i]
		if r.Cut {
			b.Cut[r.Lane], b.Left[r.Lane] = true, true
			continue
		}
		b.fetched[r.Lane]++
		if b.last[r.Lane] = r.Sequence; b.first[r.Lane] == 0 {
			b.first[r.Lane] = r.Sequence
		}
		switch {
		case r.Key != "" && stays[r.Key]:
			b.Left[r.Lane] = true
		case b.isBlocked(r):
			b.follow(r)
		case r.Key != "" && ways[r.Key] != "" && ways[r.Key] != b.way(r):
			b.Left[r.Lane] = true
			stays[r.Key] = true
		case r.Refusal() != "":
			b.Die(r, r.Refusal(), b.rules.BlocksDead)
		case r.IsTimed(): // also when its time has come: a transaction may be about to cancel it, see lanedb.Moves.Delay
			b.Timed = append(b.Timed, outboxdb.RowID{Lane: r.Lane, Seq: r.Sequence})
		case r.Expired:
			b.Die(r, ErrExpired.Error(), b.rules.BlocksExpired)
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
//   - Rows that are not sent at all, because they have expired, wait, or are no valid events, are a group too.
//
// The name is never "".
func (b *Batch) way(r *outboxdb.Row) string {
	place := r.Topic + "\x00" + r.RoutingKey
	switch {
	case r.Expired || r.Waits || r.Refusal() != "":
		return "\x00held"
	case !b.wasInFlight(r):
		return place
	case r.Crashes == 0:
		return place + "\x00apart"
	default:
		return place + "\x00" + strconv.FormatInt(r.Sequence, 10)
	}
}

func (b *Batch) wasInFlight(r *outboxdb.Row) bool { return b.Lanes[r.Lane].InFlight.has(r.Sequence) }

// put adds a row to the rows that are sent. A row that was in flight goes apart. Its lane then counts as left, so
// that the lane's position does not move beyond the row before it is out.
func (b *Batch) put(r *outboxdb.Row) {
	if b.wasInFlight(r) {
		b.Apart = append(b.Apart, r)
		b.Left[r.Lane] = true
		return
	}
	b.Send = append(b.Send, r)
}

// isBlocked reports whether the key of a row is blocked: in the database, or by an earlier row of this batch.
func (b *Batch) isBlocked(r *outboxdb.Row) bool {
	if r.Key == "" {
		return false
	}
	_, now := b.blocked[r.Lane][r.Key]
	return now || b.Lanes[r.Lane].Blocks.has(r.Key)
}

// follow moves a row behind the block of its key.
func (b *Batch) follow(r *outboxdb.Row) {
	b.add(r, lanedb.Outcome{Seq: r.Sequence, Verdict: lanedb.Follower}, "")
}

// Die makes the row a dead letter. blocks reports whether such a row of a topic blocks its key.
func (b *Batch) Die(r *outboxdb.Row, reason string, blocks func(topic string) bool) {
	if !blocks(r.Topic) {
		b.add(r, lanedb.Outcome{Seq: r.Sequence, Verdict: lanedb.Abandoned, Error: reason}, "")
		return
	}
	b.add(r, lanedb.Outcome{Seq: r.Sequence, Verdict: lanedb.Dead, Error: reason}, stateDead)
}

// add notes the outcome of a row. blocks is the state of the block that the row leaves on its key; "": none.
func (b *Batch) add(r *outboxdb.Row, o lanedb.Outcome, blocks string) {
	o.Cause = r.Fingerprint(o.Error)
	b.Outcomes[r.Lane] = append(b.Outcomes[r.Lane], o)
	b.rows[outboxdb.RowID{Lane: r.Lane, Seq: r.Sequence}] = r
	if r.Key == "" || blocks == "" {
		return
	}
	if b.blocked[r.Lane] == nil {
		b.blocked[r.Lane] = map[string]string{}
	}
	b.blocked[r.Lane][r.Key] = blocks
}

// Judge decides about each row that was sent, by the error that the publisher returned for it. errs has the errors by
// index of Send; a row without an error is confirmed.
//
// Rows of a key come in order. Once one of them stays for another try, the later rows stay as well; once one is held
// or dead, they follow it. A publisher reports such rows as failed itself. If it reports a later row as confirmed,
// the order is broken already and cannot be mended. The row is settled all the same, because sending it again would
// only add a duplicate.
func (b *Batch) Judge(errs map[int]error) {
	for i, r := range b.Send {
		err := errs[i]
		switch class := schedule.Classify(err); {
		case err == nil:
			b.Published = append(b.Published, r)
		case r.Key != "" && b.stays[r.Key]:
			b.leave(r)
		case b.isBlocked(r):
			b.follow(r)
		case class == schedule.ClassMessage:
			b.Refused = append(b.Refused, r)
			if wait, dead := b.rules.Refusal(r, err); dead {
				b.Die(r, err.Error(), b.rules.BlocksDead)
				b.stays[r.Key] = b.rules.goesOn(r.Topic) // the publisher held back the rows behind it, they are sent again
			} else {
				b.add(r, lanedb.Outcome{Seq: r.Sequence, Verdict: lanedb.Refused, Wait: wait, Error: err.Error()}, stateFailed)
			}
		default:
			b.stays[r.Key] = true
			b.leave(r)
			if class == schedule.ClassBroker && b.Trouble == nil {
				b.Trouble = err // the first error stands for all of them
			}
		}
	}
}

// leave keeps a row that was sent for another try.
func (b *Batch) leave(r *outboxdb.Row) {
	b.Left[r.Lane] = true
	b.Stay++
}

// Wrote records that the outcomes of a lane are written. Its blocks are added only now. A block in memory
// alone would hold rows, and nothing would ever release them.
func (b *Batch) Wrote(lane int16) {
	b.Lanes[lane].Blocks.add(b.blocked[lane])
	b.Moved += len(b.Outcomes[lane])
}

// RowOf returns the row of an outcome.
func (b *Batch) RowOf(lane int16, o lanedb.Outcome) *outboxdb.Row {
	return b.rows[outboxdb.RowID{Lane: lane, Seq: o.Seq}]
}

// Advance moves the positions of lanes in which no row was left behind. A lane that gave no row is empty up to the
// mark. The positions move in memory only; the next batch writes them down. If the process dies before that, the next
// owner reads some empty stretches again, and no more.
func (b *Batch) Advance(group []*Lane) {
	for _, l := range group {
		n := l.Lease.Lane
		l.InFlight.passed(b.first[n])
		if l.Located && !b.Left[n] {
			l.At = l.At.Advance(b.end(n, b.Low))
			b.Short.Advance(&l.Short, b.end(n, b.Short.to))
		}
	}
}

// end returns the end of the done part of a lane, if no row of it was left. It is never beyond the mark, because
// rows may still appear there. If the fetch ended before the end of the lane, it is never beyond the last row that
// came, because the rows behind it were not read.
func (b *Batch) end(n int16, mark int64) int64 {
	if upto, all := b.upto[n]; all {
		return min(mark, upto)
	}
	if last, some := b.last[n]; some {
		return min(mark, last)
	}
	return mark
}

// LeasesOf returns the leases of the lanes that the rows are in.
func LeasesOf(lanes map[int16]*Lane, ids []outboxdb.RowID) (leases []lanedb.Lease) {
	seen := map[int16]bool{}
	for _, id := range ids {
		if !seen[id.Lane] {
			seen[id.Lane] = true
			leases = append(leases, lanes[id.Lane].Lease)
		}
	}
	return leases
}
