package projector

import (
	"time"

	"github.com/oncebox/oncebox/retry"
)

// pauses are how long the relay waits after failures, and between looks at the state.
type pauses struct {
	loop   retry.Policy // a loop, after a step that failed
	topic  retry.Policy // a topic in trouble, until a row of it is tried
	silent retry.Policy // a worker, after a call without a receipt

	shortcut time.Duration // for how long a mark waits for open transactions before fetches take a shortcut

	observe time.Duration // how often the state of an outbox is read for the gauges; 0: the default of leader.Reader
}

func defaultPauses() pauses {
	return pauses{
		loop:   retry.Policy{Delay: 100 * time.Millisecond, MaxDelay: 2 * time.Second},
		topic:  retry.Policy{Delay: 500 * time.Millisecond, MaxDelay: 30 * time.Second},
		silent: retry.Policy{Delay: time.Second, MaxDelay: 15 * time.Second},

		shortcut: time.Second,
	}
}
