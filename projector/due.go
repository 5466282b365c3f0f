package projector

import (
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
