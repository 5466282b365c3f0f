package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/outbox"
)

// suspects are rows of a lane that may have killed its former owner. They are sent one by one, in the whole process, so
// that the one that kills again is known.
type suspects struct {
	outbox.Suspects

	picked  map[int64]bool
	cleared map[int64]bool // this process has lived through their publication
}

func newSuspects(s outbox.Suspects) suspects {
	out := suspects{Suspects: s, picked: map[int64]bool{}, cleared: map[int64]bool{}}
	for _, seq := range s.Picked {
		out.picked[seq] = true
	}
	return out
}

func (s *suspects) has(seq int64) bool {
	return (seq <= s.UpTo || s.picked[seq]) && !s.cleared[seq]
}

func (s *suspects) hasHeld(h *outbox.Held) bool {
	return !h.RetryAfter.After(s.HeldUntil) && !s.cleared[h.Sequence]
}

// passed forgets the suspects when the lane begins beyond them.
func (s *suspects) passed(head int64) {
	if head > s.UpTo {
		s.UpTo = 0
	}
}

// isolated is how many suspects one pass sends before it turns to the other rows again.
const isolated = 32

// isolate sends the suspects of a batch one by one. The count of a row is committed before its attempt and taken back
// after it: what is found counted by a successor was the last thing that a projector did. An outage does not count,
// because each process counts a row at its first attempt only, and takes that back if it hears anything at all.
//
// Only one row is sent in this way at a time: of two, a crash would accuse both.
//
// left are the keys of rows that were sent before and stay. What comes after them, or after a row that is held by now, stays
// as well.
func (w *worker) isolate(ctx context.Context, lanes map[int16]*lane, rows []*outbox.Row, left map[string]bool) (moved int, err error) {
	if len(rows) == 0 || !w.r.alone.TryLock() {
		return 0, nil
	}
	defer w.r.alone.Unlock()
	for _, r := range rows[:min(len(rows), isolated)] {
		l := lanes[r.Lane]
		_, blocked := l.blocks[r.Key]
		if r.Key != "" && (left[r.Key] || blocked) || len(w.stillReady([]*lane{l})) == 0 {
			continue
		}
		one := newBatch(lanes)
		if w.killer(r) {
			one.die(w, r, crashReason(r))
		} else if err := w.r.store.Suspect(ctx, l.lease, r.Sequence, false); err != nil {
			return moved, w.forget(ctx, l, err)
		} else {
			one.send = []*outbox.Row{r}
			one.errs = w.publish(ctx, one.send)
			l.suspects.cleared[r.Sequence] = true
			one.judge(w)
		}
		err := w.settle(ctx, one)
		moved += one.moved
		if one.left[r.Lane] || len(one.outcomes) > 0 {
			left[r.Key] = true
		}
		if len(one.send) > 0 && (err != nil || one.left[r.Lane]) {
			err = errors.Join(err, w.r.store.Acquit(ctx, l.lease, r.Sequence, false))
		}
		if err = errors.Join(err, one.trouble); err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// isolateHeld is isolate for held rows.
func (w *worker) isolateHeld(ctx context.Context, lanes map[int16]*lane, rows []*outbox.Held) (moved int, err error) {
	if len(rows) == 0 || !w.r.alone.TryLock() {
		return 0, nil
	}
	defer w.r.alone.Unlock()
	for _, h := range rows[:min(len(rows), isolated)] {
		l := lanes[h.Lane]
		if len(w.stillReady([]*lane{l})) == 0 {
			continue
		}
		q, err := w.queueOf(ctx, l, &h.Row)
		if err != nil || q == nil {
			return moved, err
		}
		if w.killer(&h.Row) {
			err = w.bury(ctx, l, &h.Row, crashReason(&h.Row))
			moved++
		} else if err = w.r.store.Suspect(ctx, l.lease, h.Sequence, true); err != nil {
			err = w.forget(ctx, l, err)
		} else {
			q.rows, q.from = q.rows[:1], 0
			errs := w.publish(ctx, q.rows)
			l.suspects.cleared[h.Sequence] = true
			var n int
			n, err = w.settleQueue(ctx, q, errs)
			moved += n
			if err == nil && errs[0] != nil && classify(errs[0]) != classMessage {
				err = w.r.store.Acquit(ctx, l.lease, h.Sequence, true)
				if classify(errs[0]) == classBroker {
					err = errors.Join(err, errs[0])
				}
			}
		}
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// killer tells whether enough projectors have died over a row.
func (w *worker) killer(r *outbox.Row) bool {
	most := w.r.p.cfg.MaxCrashes
	return most > 0 && r.Crashes >= most
}

func crashReason(r *outbox.Row) string {
	return fmt.Sprintf("%d projectors died while they published this row alone", r.Crashes)
}

// forgetHeld ends the suspicion of held rows: all that were due at the takeover were tried.
func (s *suspects) forgetHeld() { s.HeldUntil = time.Time{} }
