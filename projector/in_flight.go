package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// inFlight names the rows of a lane that were on their way when the lane's former owner died. One of them may have
// killed it. They are sent apart from all other rows. If another projector dies over them, they are sent one by one,
// so that the row that kills becomes known.
//
// The search for that row goes through three owners or more:
//
//  1. The first one dies with a normal batch. Nothing is counted, but its note says which rows were taken, see lanedb.Log.Take.
//  2. The second one sends these rows apart, together, and counts all of them before. It dies: each of them has a count of 1.
//  3. The third one sends rows with a count one by one, and counts each before. Rows that are harmless leave. It dies over the row that kills,
//     whose count is 2 then.
//  4. Its successors do the same, until the count exceeds Config.MaxCrashes. Then the row becomes a dead letter without another try.
type inFlight struct {
	lanedb.InFlight

	picked  map[int64]bool
	cleared map[int64]bool // rows whose publication this process has survived
}

func newInFlight(s lanedb.InFlight) inFlight {
	out := inFlight{InFlight: s, picked: map[int64]bool{}, cleared: map[int64]bool{}}
	for _, seq := range s.Picked {
		out.picked[seq] = true
	}
	return out
}

// has reports whether a fresh row was in flight and has not been cleared since.
func (s *inFlight) has(seq int64) bool {
	return (seq <= s.UpTo || s.picked[seq]) && !s.cleared[seq]
}

// hasHeld reports whether a held row was in flight. The note of the former owner does not name held rows, so each one
// that was due at the takeover counts.
func (s *inFlight) hasHeld(h *lanedb.DueRow) bool {
	return !h.RetryAfter.After(s.HeldUntil) && !s.cleared[h.Sequence]
}

// passed forgets the rows in turn when the first unsent row of the lane lies beyond them.
func (s *inFlight) passed(head int64) {
	if head > s.UpTo {
		s.UpTo = 0
	}
}

// mostAlone is the largest number of rows that one pass sends one by one before it turns to the other rows again.
const mostAlone = 32

// groupsOf divides the rows that were in flight into groups that are sent one after another: a group for each row
// that is counted already, then one group for all others. Projectors rarely die because of a row, and there may be
// many such rows, so they are sent together, as fast as other rows, the first time.
func groupsOf(rows []*outboxdb.Row) (groups [][]*outboxdb.Row) {
	var together []*outboxdb.Row
	for _, r := range rows {
		if r.Crashes == 0 {
			together = append(together, r)
		} else if len(groups) < mostAlone {
			groups = append(groups, []*outboxdb.Row{r})
		}
	}
	if len(together) > 0 {
		groups = append(groups, together)
	}
	return groups
}

// isolate sends the rows of a batch that were in flight. Each attempt is counted before it begins and the count is
// committed; after the attempt it is taken back. So a count that a successor finds belongs to one of the last things
// that some projector did.
//
// An outage of the broker is not a crash. Each process counts a row at its first attempt only, and takes that back
// when the publication ends, with whatever answer. Rows that the process has survived are cleared, and go with all
// other rows from then on.
//
// Only one worker of the relay isolates at a time. If two did, a crash would count against the rows of both. A worker
// that finds the lock taken leaves its rows where they are, and isolated wakes it.
func (w *worker) isolate(ctx context.Context, lanes map[int16]*lane, rows []*outboxdb.Row) (moved int, err error) {
	if len(rows) == 0 || !w.r.alone.TryLock() {
		return 0, nil
	}
	defer w.r.isolated()
	for _, group := range groupsOf(rows) {
		if !w.mayPublish(lanes, group) {
			continue
		}
		one := newBatch(lanes)
		if r := group[0]; w.killer(r) {
			one.die(r, crashReason(r), w.r.p.cfg.blocksDead)
		} else if err := w.countAttempt(ctx, lanes, group, false); err != nil {
			return moved, err
		} else {
			one.send = group
			one.errs = w.publish(ctx, lanes, group)
			lived(lanes, group, one.errs)
			one.judge(w)
		}
		err := w.settle(ctx, one)
		moved += one.moved
		if len(one.send) > 0 && (err != nil || len(one.left) > 0) {
			err = errors.Join(err, w.clearAttempt(ctx, lanes, group, false))
		}
		if err = errors.Join(err, one.trouble); err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// isolateHeld is isolate for held rows. Of each key only the head is sent.
func (w *worker) isolateHeld(ctx context.Context, lanes map[int16]*lane, rows []*outboxdb.Row) (moved int, err error) {
	if len(rows) == 0 || !w.r.alone.TryLock() {
		return 0, nil
	}
	defer w.r.isolated()
	for _, group := range groupsOf(rows) {
		var queues []*queue
		var send []*outboxdb.Row
		for _, r := range group {
			q, err := w.queueOf(ctx, lanes[r.Lane], r, headOnly)
			if err != nil {
				return moved, err
			}
			if q != nil {
				q.rows, q.from = q.rows[:1], len(send)
				send = append(send, r)
				queues = append(queues, q)
			}
		}
		n, err := w.sendHeads(ctx, lanes, queues, send)
		if moved += n; err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// sendHeads counts the heads of queues, publishes and settles them. If not all of them have left, the counts are
// taken back.
func (w *worker) sendHeads(ctx context.Context, lanes map[int16]*lane, queues []*queue, send []*outboxdb.Row) (moved int, err error) {
	if len(send) == 0 || !w.mayPublish(lanes, send) {
		return 0, nil
	}
	if r := send[0]; w.killer(r) {
		return w.giveUp(ctx, lanes, send, crashReason(r), w.r.p.cfg.blocksDead)
	}
	if err := w.countAttempt(ctx, lanes, send, true); err != nil {
		return 0, err
	}
	errs := w.publish(ctx, lanes, send)
	lived(lanes, send, errs)
	moved, err = w.settleQueues(ctx, queues, errs)
	if err != nil || moved < len(send) {
		err = errors.Join(err, w.clearAttempt(ctx, lanes, send, true))
	}
	return moved, err
}

// countAttempt counts rows that are about to be sent. If one of them does not belong to this worker any more, the
// lanes of all of them are in doubt, and publish leaves all rows where they are.
func (w *worker) countAttempt(ctx context.Context, lanes map[int16]*lane, rows []*outboxdb.Row, held bool) (err error) {
	leases, ids := identify(lanes, rows)
	counted := w.r.lanes.Moves.CountAttempt(ctx, leases, ids, held)
	for _, l := range leases {
		err = w.forget(ctx, lanes[l.Lane], counted)
	}
	return err
}

// clearAttempt takes the counts of rows back that have not left.
func (w *worker) clearAttempt(ctx context.Context, lanes map[int16]*lane, rows []*outboxdb.Row, held bool) error {
	leases, ids := identify(lanes, rows)
	return w.r.lanes.Moves.ClearAttempt(ctx, leases, ids, held)
}

// lived records that this process has survived the publication of rows. Rows that were not handed over (errInDoubt)
// prove nothing.
func lived(lanes map[int16]*lane, rows []*outboxdb.Row, errs map[int]error) {
	for i, r := range rows {
		if !errors.Is(errs[i], errInDoubt) {
			lanes[r.Lane].inFlight.cleared[r.Sequence] = true
		}
	}
}

func identify(lanes map[int16]*lane, rows []*outboxdb.Row) (leases []lanedb.Lease, ids []outboxdb.RowID) {
	for _, r := range rows {
		ids = append(ids, outboxdb.RowID{Lane: r.Lane, Seq: r.Sequence})
	}
	return leasesOf(lanes, ids), ids
}

// killer reports whether a row is to become a dead letter because projectors have died over it. The first count does
// not matter: at that time the row was one of many.
func (w *worker) killer(r *outboxdb.Row) bool {
	most := w.r.p.cfg.MaxCrashes
	return most > 0 && r.Crashes > most
}

func crashReason(r *outboxdb.Row) string {
	return fmt.Sprintf("%d projectors died while they published this row alone", r.Crashes-1)
}

// forgetHeld records that all held rows that were due at the takeover have been tried.
func (s *inFlight) forgetHeld() { s.HeldUntil = time.Time{} }
