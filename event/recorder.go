package event

import (
	"slices"
	"time"
)

// Recorded is an event together with the time at which it was recorded.
type Recorded struct {
	Event Event
	At    time.Time // UTC, microseconds: what PostgreSQL can store
}

// Recorder collects the events of one aggregate. Embed it by value; its fields are unexported, so that it adds no
// column to a bun model (tag it `bun:"-"` to say so). The zero value is ready. It is not safe for concurrent use, as
// an aggregate is not.
type Recorder struct {
	recorded []Recorded
}

// Record remembers that e happened now.
func (r *Recorder) Record(e Event) {
	r.recorded = append(r.recorded, Recorded{Event: e, At: time.Now().UTC().Truncate(time.Microsecond)})
}

// RecordedEvents returns what was recorded since the last [Recorder.ClearEvents], oldest first. The slice is the
// caller's own.
func (r *Recorder) RecordedEvents() []Recorded { return slices.Clone(r.recorded) }

// ClearEvents forgets what was recorded.
func (r *Recorder) ClearEvents() { r.recorded = nil }
