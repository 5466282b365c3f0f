package projector

import (
	"time"

	"github.com/oncebox/oncebox/internal/backoff"
)

// pauses are how long the relay waits after failures, and between looks at the state.
type pauses struct {
	loop   doubling // a loop, after a step that failed
	topic  doubling // a topic in trouble, until a row of it is tried
	silent doubling // a worker, after a call without a receipt

	shortcut time.Duration // for how long a mark waits for open transactions before fetches take a shortcut

	observe time.Duration // how often the state of an outbox is read for the gauges; 0: the default of leader.Reader
}

// doubling is a pause that doubles with each failure in a row, up to the longest one.
type doubling struct{ first, longest time.Duration }

func (d doubling) after(failures int) time.Duration {
	return backoff.Exponential(failures, d.first, d.longest)
}

func defaultPauses() pauses {
	return pauses{
		loop:   doubling{100 * time.Millisecond, 2 * time.Second},
		topic:  doubling{500 * time.Millisecond, 30 * time.Second},
		silent: doubling{time.Second, 15 * time.Second},

		shortcut: time.Second,
	}
}
