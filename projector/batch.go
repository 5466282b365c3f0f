package projector

import (
	"context"
	"maps"
	"slices"
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

// fresh fetches, publishes and settles one batch from the heads of the lanes.
//
// It reads the mark and the shortcut before the fetch begins. Only then all rows below the mark are visible to the
// fetch, so a lane whose rows have all left is done up to the mark. A mark that is read afterwards could be beyond a
// row that the fetch did not see yet, and that row would never be published.
//
// A lane is in question (more) from the start, and only a batch that ends well takes that back.
func (w *worker) fresh(ctx context.Context, group []*lane) (moved int, err error) {
	// A batch that has begun is finished: rows that the broker has are settled even if the program is stopped
	// meanwhile.
	ctx, cancel := w.r.begun(ctx)
	defer cancel()

	if len(group) == 0 {
		return 0, nil
	}
	byLane := map[int16]*lane{}
	for _, l := range group {
		byLane[l.lease.Lane], l.more = l, true // until the batch has ended
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
			moved = 1 // the shortcut has ended: no pause
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

// deliver publishes rows and writes down what became of them. The error is that of the database or of the broker. The
// batch is never nil.
//
// Rows that were in flight when a former owner died come last, when all others are settled: if one of them kills this
// process, nothing that was published has to be published again.
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

// batch is the rows of one fetch on their way through sort, publish, judge and settle.
type batch struct {
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
	trouble   error // why rows stay, if the broker is the reason
}

func newBatch(lanes map[int16]*lane) *batch {
	return &batch{
		lanes: lanes, inTurn: map[int16]bool{}, fetched: map[int16]int{}, cut: map[int16]bool{}, first: map[int16]int64{}, last: map[int16]int64{},
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
		case r.IsTimed(): // also when its time has come: a transaction may be about to cancel it, see lanedb.Moves.Delay
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
				b.stays[r.Key] = w.r.p.cfg.goesOn(r.Topic) // the publisher held back the rows behind it, they are sent again
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

// settle writes down what became of the rows, in three steps: published rows, then delayed rows without a key, then
// all other rows that leave the lane. Published rows come first, because they are the only ones that would be sent
// twice if a later step fails. If the first step fails, it is tried again before the next fetch, see unsettled. After
// a failure of the others, the next fetch finds the rows that are still in their lanes.
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
		w.due = dueTime{} // these rows will be due, perhaps earlier than all others
		l := b.lanes[n]
		if err := w.r.lanes.Moves.Hold(ctx, l.lease, outcomes); err != nil {
			b.left[n] = true
			if err := w.forget(ctx, l, err); err != nil {
				return err
			}
			continue
		}
		// The blocks are added only after they are written. A block in memory alone would hold rows, and nothing
		// would ever release them.
		maps.Copy(l.blocks, b.blocked[n])
		b.moved += len(outcomes)
		for _, o := range outcomes {
			w.report(ctx, b.rows[outboxdb.RowID{Lane: n, Seq: o.Seq}], o)
		}
	}
	return nil
}

// delay takes delayed rows without an ordering key out of their lanes. A row that a transaction is about to cancel or
// move is locked and stays; the next fetch looks at it again.
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
