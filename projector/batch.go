package projector

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// States of a block, as in outbox_block.
const (
	stateFailed   = "failed"
	stateDraining = "draining"
	stateDead     = "dead"
)

// fresh fetches, publishes and settles one batch.
func (w *worker) fresh(ctx context.Context, group []*lane) (moved int, err error) {
	// Begun is begun: what was handed to the broker is settled even if the program is told to stop meanwhile.
	ctx, cancel := w.r.begun(ctx)
	defer cancel()

	if len(group) == 0 {
		return 0, nil
	}
	byLane := map[int16]*lane{}
	for _, l := range group {
		byLane[l.lease.Lane], l.more = l, true // until it is known
	}
	low, short := w.r.mark.current(), w.r.mark.shortcut() // before the fetch begins, see watermark
	rows, sure, err := w.fetchHeads(ctx, byLane, group, short)
	if err != nil {
		return 0, err
	}
	if !sure {
		note(group, newBatch(byLane))
		w.more, err = w.r.mark.lookAgain(ctx, w.r.lanes.Log, short)
		if w.more {
			moved = 1 // no reason to pause
		}
		for _, l := range group {
			l.more = w.more || err != nil
		}
		return moved, err
	}
	w.backlogged.leads(rows, w.r.p.cfg.BatchSize)
	b := newBatch(byLane)
	b.low, b.short = low, short
	for n := range byLane {
		b.inTurn[n] = true
	}
	_, err = w.deliver(ctx, b, rows)
	note(group, b)
	w.more = len(b.left) > 0 || slices.ContainsFunc(group, func(l *lane) bool { return l.full })
	if err != nil {
		return b.moved, err
	}
	for _, l := range group {
		l.more = l.full || b.left[l.lease.Lane]
	}
	b.advance(group)
	return b.moved, nil
}

// deliver publishes rows and writes down what became of them. The error is the database's or the broker's; the batch is
// never nil.
func (w *worker) deliver(ctx context.Context, b *batch, rows []outboxdb.Row) (*batch, error) {
	b.sort(w, rows)
	if len(b.send) > 0 {
		b.errs = w.publish(ctx, b.lanes, b.send)
	}
	b.judge(w)
	if err := w.settle(ctx, b); err != nil {
		return b, err
	}
	if b.trouble != nil {
		return b, b.trouble
	}
	n, err := w.isolate(ctx, b.lanes, b.apart)
	b.moved += n
	return b, err
}

// batch is what one fetch brought, and what becomes of it.
type batch struct {
	lanes   map[int16]*lane
	inTurn  map[int16]bool // the rows are the heads of these lanes: nothing unsent lies before them
	low     int64          // the mark when the fetch began
	short   shortcut
	upto    map[int16]int64 // where the fetch ended, if it brought all rows up to there
	fetched map[int16]int
	cut     map[int16]bool  // lanes with a row that did not fit into Config.BatchBytes
	first   map[int16]int64 // lowest sequence per lane
	last    map[int16]int64 // highest
	send    []*outboxdb.Row
	errs    map[int]error // of send, by index

	apart []*outboxdb.Row // to be sent apart from the others

	published []*outboxdb.Row
	timed     []outboxdb.RowID // delayed rows without order
	outcomes  map[int16][]lanedb.Outcome
	rows      map[outboxdb.RowID]*outboxdb.Row // those that have an outcome
	blocked   map[int16]map[string]string      // keys that the outcomes block, by lane
	left      map[int16]bool                   // lanes in which rows stay for another try
	stays     map[string]bool                  // keys of rows that were sent and stay
	moved     int
	trouble   error // topic or broker: the reason why rows stay
}

func newBatch(lanes map[int16]*lane) *batch {
	return &batch{
		lanes: lanes, inTurn: map[int16]bool{}, fetched: map[int16]int{}, cut: map[int16]bool{}, first: map[int16]int64{}, last: map[int16]int64{},
		outcomes: map[int16][]lanedb.Outcome{}, rows: map[outboxdb.RowID]*outboxdb.Row{},
		blocked: map[int16]map[string]string{}, left: map[int16]bool{}, stays: map[string]bool{},
	}
}

// sort decides what happens to each row: what waits goes to the held rows, what may have killed a projector is sent
// later and apart, what is left is sent.
//
// Rows of one key that go different ways go one after the other: what comes after the change stays for the next fetch.
// That includes a row that has expired or must wait. Nobody knows yet whether the row in front of it will leave, and a
// block made now would hold that one behind its own successor.
func (b *batch) sort(w *worker, rows []outboxdb.Row) {
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
		case r.IsTimed(): // also when its time has come: it may be cancelled until then, see lanedb.Moves.Delay
			b.timed = append(b.timed, outboxdb.RowID{Lane: r.Lane, Seq: r.Sequence})
		case r.Expired:
			b.die(r, errExpired.Error(), w.r.p.cfg.blocksExpired)
		case r.Waits:
			b.add(r, lanedb.Outcome{Seq: r.Sequence, Verdict: lanedb.Delayed}, stateFailed)
		default:
			ways[r.Key] = b.way(r)
			b.put(r)
		}
	}
}

// way says in which company a row may be sent without losing its order: the broker keeps the order within a topic and a
// routing key, what was in flight is sent after the other rows, and those of them that were counted one by one. What is not sent
// at all has no company. The answer is never "".
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

func (b *batch) put(r *outboxdb.Row) {
	if b.wasInFlight(r) {
		b.apart = append(b.apart, r)
		b.left[r.Lane] = true
		return
	}
	b.send = append(b.send, r)
}

func (b *batch) isBlocked(r *outboxdb.Row) bool {
	if r.Key == "" {
		return false
	}
	_, before := b.lanes[r.Lane].blocks[r.Key]
	_, now := b.blocked[r.Lane][r.Key]
	return before || now
}

func (b *batch) follow(r *outboxdb.Row) {
	b.add(r, lanedb.Outcome{Seq: r.Sequence, Verdict: lanedb.Follower}, "")
}

// die makes the row a dead letter. blocks tells whether such a row of a topic blocks its key.
func (b *batch) die(r *outboxdb.Row, reason string, blocks func(topic string) bool) {
	if !blocks(r.Topic) {
		b.add(r, lanedb.Outcome{Seq: r.Sequence, Verdict: lanedb.Abandoned, Error: reason}, "")
		return
	}
	b.add(r, lanedb.Outcome{Seq: r.Sequence, Verdict: lanedb.Dead, Error: reason}, stateDead)
}

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

// judge decides over each row that was sent.
//
// Rows of a key come in order. Once one of them stays for another try, the later ones stay as well; once one is held or
// dead, they follow it. An adapter reports them as failed itself; a later row that it calls confirmed was confirmed, and
// is settled, because sending it again would only add a duplicate to what cannot be mended.
func (b *batch) judge(w *worker) {
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
			if wait, dead := w.refused(r, err); dead {
				b.die(r, err.Error(), w.r.p.cfg.blocksDead)
				b.stays[r.Key] = w.r.p.cfg.goesOn(r.Topic) // the adapter held back what follows
			} else {
				b.add(r, lanedb.Outcome{Seq: r.Sequence, Verdict: lanedb.Refused, Wait: wait, Error: err.Error()}, stateFailed)
			}
		default:
			b.stays[r.Key] = true
			b.left[r.Lane] = true
			if class == classBroker && b.trouble == nil {
				b.trouble = err // one stands for all
			}
		}
	}
}

// settle writes down what became of the rows: first those that are out, then those that are held.
func (w *worker) settle(ctx context.Context, b *batch) error {
	p := w.r.p
	if n := len(b.send) - len(b.published); n > 0 {
		p.telemetry.unconfirmed.Add(ctx, int64(n))
	}
	if len(b.published) > 0 {
		lost, err := w.settleFresh(ctx, b.lanes, b.out(w.r.store.Handle().Keeps()))
		if err != nil {
			return err
		}
		for _, n := range lost {
			b.left[n] = true
		}
		b.moved += len(b.published)
	}
	if err := w.delay(ctx, b); err != nil {
		return err
	}
	for n, outcomes := range b.outcomes {
		w.due = dueTime{} // these are what will be due
		l := b.lanes[n]
		if err := w.r.lanes.Moves.Hold(ctx, l.lease, outcomes); err != nil {
			b.left[n] = true
			if err := w.forget(ctx, l, err); err != nil {
				return err
			}
			continue
		}
		// Known only after it is written: a block that exists in memory alone would hold rows that nothing releases.
		maps.Copy(l.blocks, b.blocked[n])
		b.moved += len(outcomes)
		for _, o := range outcomes {
			w.report(ctx, b.rows[outboxdb.RowID{Lane: n, Seq: o.Seq}], o)
		}
	}
	return nil
}

// delay takes the delayed rows without order out of their lanes. Those that stay are looked at again.
func (w *worker) delay(ctx context.Context, b *batch) error {
	if len(b.timed) == 0 {
		return nil
	}
	w.due = dueTime{}
	leases := leasesOf(b.lanes, b.timed)
	delayed, held, err := w.r.lanes.Moves.Delay(ctx, leases, b.timed)
	if err != nil {
		return err
	}
	for _, l := range leases {
		if !held[l.Lane] {
			_ = w.forget(ctx, b.lanes[l.Lane], lanedb.ErrFenced)
		}
	}
	gone := map[outboxdb.RowID]bool{}
	for _, id := range delayed {
		gone[id] = true
	}
	for _, id := range b.timed {
		if !gone[id] {
			b.left[id.Lane] = true
		}
	}
	b.moved += len(delayed)
	return nil
}

// advance moves the positions of lanes in which nothing was left behind. A lane that gave nothing is empty up to the mark. Here they move in
// memory only: the next batch writes it down.
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

// end is how far a lane is done when nothing of it is left: a row may still appear beyond the mark, and is not in the batch beyond its last row.
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
