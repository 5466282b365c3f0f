package projector

import (
	"context"
	"math"
	"time"
)

// dueTime says when a worker has to look for held rows that have become due. The zero value means at once.
//
// The answer of the database about the next due row stays true, because only two parties add held rows. The worker
// itself sets the zero value when it does. An operator raises the counter of the lane, and the worker sets the zero
// value when it loads the lane again.
type dueTime struct {
	last  time.Time // of the last look
	known bool      // next is valid
	next  time.Time // when the next row becomes due; zero: no row will
	asked time.Time // by the clock of the database, when it was last asked for the next row
}

// isToBeChecked reports whether a row is due, or the last look is longer ago than every.
func (d *dueTime) isToBeChecked(every time.Duration) bool {
	return time.Since(d.last) >= every || d.hasCome()
}

func (d *dueTime) hasCome() bool { return d.known && !d.next.IsZero() && time.Until(d.next) <= 0 }

// checked records a look that found no row to send: none was due, or the due rows stay. Rows that stay are looked at
// again after a pause, not at once, so a next that has come does not count any more.
func (d *dueTime) checked(began time.Time) { d.last, d.known = began, d.known && !d.hasCome() }

// untilDue returns the time for which the worker need not look for held rows. It asks the database only if the answer
// is not known.
func (w *worker) untilDue(ctx context.Context) (time.Duration, error) {
	const never = time.Duration(math.MaxInt64)
	if !w.due.known && !w.due.last.IsZero() { // else the lanes were not ready for a look
		ctx, cancel := w.r.bounded(ctx)
		defer cancel()
		// The last look came after the question before. What is due since that question and was left alone costs one look more.
		next, err := w.r.lanes.Held.NextDue(ctx, w.numbers(), w.due.asked)
		if err != nil {
			return 0, err
		}
		w.due.known, w.due.next, w.due.asked = true, time.Time{}, next.Asked
		if next.Some {
			w.due.next = time.Now().Add(max(next.In, 0) + time.Millisecond)
		}
	}
	if w.due.next.IsZero() {
		return never, nil
	}
	return max(time.Until(w.due.next), 0), nil
}
