package projector

import (
	"context"
	"math"
	"time"
)

// dueTime says when a worker has to look for held rows that have become due. The zero value: at once.
//
// Rows are held by the worker itself, and by operators, who tell its lanes: the worker then begins with the zero value. So
// what it was told of the next one stays true.
type dueTime struct {
	last  time.Time // when it looked
	known bool
	next  time.Time // if known: when the next one becomes due; zero: there is none
	asked time.Time // of the database, when it was last asked for the next one
}

// isToBeChecked: something is due, or the last look is longer ago than every.
func (d *dueTime) isToBeChecked(every time.Duration) bool {
	return time.Since(d.last) >= every || d.hasCome()
}

func (d *dueTime) hasCome() bool { return d.known && !d.next.IsZero() && time.Until(d.next) <= 0 }

// checked: there was nothing due, or nothing that may be sent now, when the look began.
func (d *dueTime) checked(began time.Time) { d.last, d.known = began, d.known && !d.hasCome() }

// untilDue returns for how long there is no need to look for held rows.
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
