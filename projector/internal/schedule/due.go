package schedule

import (
	"time"
)

// DueTime says when a worker has to look for held rows that have become due. The zero value means at once.
//
// The answer of the database about the next due row stays true, because only two parties add held rows. The worker
// itself sets the zero value when it does. An operator raises the counter of the lane, and the worker sets the zero
// value when it loads the lane again.
type DueTime struct {
	Last  time.Time // of the last look
	Known bool      // next is valid
	Next  time.Time // when the next row becomes due; zero: no row will
	Asked time.Time // by the clock of the database, when it was last asked for the next row
}

// IsToBeChecked reports whether a row is due, or the last look is longer ago than every.
func (d *DueTime) IsToBeChecked(every time.Duration) bool {
	return time.Since(d.Last) >= every || d.hasCome()
}

func (d *DueTime) hasCome() bool { return d.Known && !d.Next.IsZero() && time.Until(d.Next) <= 0 }

// Checked records a look that found no row to send: none was due, or the due rows stay. Rows that stay are looked at
// again after a pause, not at once, so a next that has come does not count any more.
func (d *DueTime) Checked(began time.Time) { d.Last, d.Known = began, d.Known && !d.hasCome() }
