package operator

import "time"

// Unknown is the value of a number that was not known when the others were read.
const Unknown = -1

// History is how the figures of the outbox, or of a consumer, went over the last 24 hours.
type History struct {
	// Consumer is the name of the consumer, of a read model without its generation. "": it is the outbox.
	Consumer string
	// Figures has an entry for each minute of the last two hours and for each ten minutes before, the oldest first. In a time
	// without an entry no process read the figures.
	Figures []Figures
}

// Figures are what was read in a minute, or in ten. Numbers and ages are the highest readings; [Unknown] if a number was not known.
type Figures struct {
	// At is when the time began, by the clock of the database, and Span how long it lasts.
	At   time.Time
	Span time.Duration

	// Waiting is the number of events that should be published, or of a consumer's messages that wait at the broker.
	Waiting int64
	// Parked is the number of a consumer's messages that wait in the database.
	Parked int64
	// Failing is the number of refused events that are tried again, or of a consumer's keys whose first message failed.
	Failing int64
	// Dead is the number of dead letters.
	Dead int64
	// Oldest is the age of the oldest event that should be published, or of a consumer's oldest parked message.
	Oldest time.Duration

	// Came, Went and Failed were counted during Counted, which is shorter than Span if nobody counted for a part of it. Came is the number of events
	// that were stored, Went of events that were published or of messages that were handled, and Failed of tries of a consumer that failed.
	Came, Went, Failed int64
	Counted            time.Duration
}

// Known reports whether the gauges of the outbox, or of a consumer's parked messages, were read.
func (f *Figures) Known() bool { return f.Dead != Unknown }

// PerSecond returns one of the three sums as a rate. ok is false if nothing was counted.
func (f *Figures) PerSecond(sum int64) (rate float64, ok bool) {
	if f.Counted <= 0 {
		return 0, false
	}
	return float64(sum) / f.Counted.Seconds(), true
}
