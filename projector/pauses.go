package projector

import (
	"time"

	"github.com/oncebox/oncebox/retry"
)

// pauses has the waiting times of the relay that are not settings. Tests use shorter ones.
type pauses struct {
	loop   retry.Policy // of a loop, after a step that failed
	topic  retry.Policy // of a topic in trouble, until one of its rows is tried
	silent retry.Policy // of a worker, after a call to the broker without a receipt

	shortcut time.Duration // the time that a mark waits for open transactions before fetches take a shortcut

	observe time.Duration // the interval at which the state of an outbox is read for the gauges; 0: the default of leader.Reader
}

func defaultPauses() pauses {
	return pauses{
		loop:   retry.Policy{Delay: 100 * time.Millisecond, MaxDelay: 2 * time.Second},
		topic:  retry.Policy{Delay: 500 * time.Millisecond, MaxDelay: 30 * time.Second},
		silent: retry.Policy{Delay: time.Second, MaxDelay: 15 * time.Second},

		shortcut: time.Second,
	}
}
