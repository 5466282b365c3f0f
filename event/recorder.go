package event

import (
	"slices"
	"time"
)

// Recorded is an event and the time at which it was recorded.
type Recorded struct {
	Event Event
	At    time.Time // in UTC and whole microseconds, as PostgreSQL stores it
}

// Recorder collects the events of one aggregate. Embed it by value. Its fields are not exported, so that it adds no column to a bun model; tag it
// `bun:"-"` to make that explicit. The zero value is ready. Like an aggregate, it is not safe for concurrent use.
type Recorder struct {
	recorded []Recorded
}

// Record adds e to the recorded events, with the present time.
func (r *Recorder) Record(e Event) {
	r.recorded = append(r.recorded, Recorded{Event: e, At: time.Now().UTC().Truncate(time.Microsecond)})
}

// RecordedEvents returns the events recorded since the last [Recorder.ClearEvents], oldest first. The caller may change the slice.
func (r *Recorder) RecordedEvents() []Recorded { return slices.Clone(r.recorded) }

// ClearEvents removes the recorded events.
func (r *Recorder) ClearEvents() { r.recorded = nil }
