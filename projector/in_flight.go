package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// inFlight are rows of a lane that were on their way when its former owner died. One of them may have killed it. They are sent
// apart from all others. If another projector dies over them, they are sent one by one, so that the row that kills is known.
type inFlight struct {
	lanedb.InFlight

	picked  map[int64]bool
	cleared map[int64]bool // this process has lived through their publication
}

func newInFlight(s lanedb.InFlight) inFlight {
	out := inFlight{InFlight: s, picked: map[int64]bool{}, cleared: map[int64]bool{}}
	for _, seq := range s.Picked {
		out.picked[seq] = true
	}
	return out
}

func (s *inFlight) has(seq int64) bool {
	return (seq <= s.UpTo || s.picked[seq]) && !s.cleared[seq]
}

func (s *inFlight) hasHeld(h *lanedb.DueRow) bool {
	return !h.RetryAfter.After(s.HeldUntil) && !s.cleared[h.Sequence]
}

// passed forgets the rows when the lane begins beyond them.
func (s *inFlight) passed(head int64) {
	if head > s.UpTo {
		s.UpTo = 0
	}
}

// mostAlone is how many rows one pass sends one by one before it turns to the other rows again.
const mostAlone = 32

// groupsOf divides the rows that were in flight into those that go alone and those that go together. Hardly any projector dies of a row, and there
// may be a backlog of them, so they go together, as fast as other rows, the first time. All of them are counted then: if
// the process dies over them, they go one by one.
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

// isolate sends the rows of a batch that were in flight. The counts of rows are committed before their attempt and taken back after it: what
// is found counted by a successor was among the last things that a projector did. An outage does not count, because each
// process counts a row at its first attempt only, and takes that back if it hears anything at all.
//
// Only one worker of the relay does so at a time: of two, a crash would count against the rows of both.
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

// countAttempt counts rows that are about to be sent. If one of them is not this worker's any more, the lanes of all are in doubt,
// and publish leaves them where they are.
func (w *worker) countAttempt(ctx context.Context, lanes map[int16]*lane, rows []*outboxdb.Row, held bool) (err error) {
	leases, ids := identify(lanes, rows)
	counted := w.r.lanes.Moves.CountAttempt(ctx, leases, ids, held)
	for _, l := range leases {
		err = w.forget(ctx, lanes[l.Lane], counted)
	}
	return err
}

func (w *worker) clearAttempt(ctx context.Context, lanes map[int16]*lane, rows []*outboxdb.Row, held bool) error {
	leases, ids := identify(lanes, rows)
	return w.r.lanes.Moves.ClearAttempt(ctx, leases, ids, held)
}

// lived remembers that this process has lived through the publication of rows.
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

// killer tells whether enough projectors have died over a row. The first time it was one of many.
func (w *worker) killer(r *outboxdb.Row) bool {
	most := w.r.p.cfg.MaxCrashes
	return most > 0 && r.Crashes > most
}

func crashReason(r *outboxdb.Row) string {
	return fmt.Sprintf("%d projectors died while they published this row alone", r.Crashes-1)
}

// forgetHeld ends the suspicion of held rows: all that were due at the takeover were tried.
func (s *inFlight) forgetHeld() { s.HeldUntil = time.Time{} }
