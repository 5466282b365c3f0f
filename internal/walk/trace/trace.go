// Package trace records which functions a program enters. Package walk writes the calls of [Enter] into the functions; the scenario
// starts and stops the recording.
package trace

import (
	"context"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// The stretches of the way.
const (
	Write   = "write"
	Relay   = "relay"
	Receive = "receive"
)

// recorder holds the functions that were entered since Start. It is global, because the traced functions
// cannot get it from anywhere else.
var recorder = &record{} //nolint:gochecknoglobals // see above

// record holds the functions of each stretch, in the order in which they were first entered.
type record struct {
	mu      sync.Mutex
	last    time.Time // when the latest function was entered
	stretch map[string][]string
	seen    map[[2]string]bool
}

// Enter records that a function was entered.
func Enter(place string) { recorder.enter(place, stretchOf(string(debug.Stack()))) }

func (r *record) enter(place, stretch string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = time.Now()
	if key := [2]string{stretch, place}; stretch != "" && r.seen != nil && !r.seen[key] {
		r.seen[key] = true
		r.stretch[stretch] = append(r.stretch[stretch], place)
	}
}

// Start begins a new recording.
func Start() {
	recorder.mu.Lock()
	defer recorder.mu.Unlock()
	recorder.stretch, recorder.seen = map[string][]string{}, map[[2]string]bool{}
}

// Entered returns the functions of each stretch that were entered since Start.
func Entered() map[string][]string {
	recorder.mu.Lock()
	defer recorder.mu.Unlock()
	entered := recorder.stretch
	recorder.stretch, recorder.seen = nil, nil
	return entered
}

// Quiet returns when no function has been entered for the length of pause.
func Quiet(ctx context.Context, pause time.Duration) error {
	for left := pause; left > 0; left = recorder.until(pause) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(left):
		}
	}
	return nil
}

// until returns the rest of the pause since the latest function was entered.
func (r *record) until(pause time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Until(r.last.Add(pause))
}

// stretchOf returns the stretch that a goroutine belongs to. It finds that by the functions on its stack, and by the
// function that started it. It is "" for goroutines that have nothing to do with the event.
func stretchOf(stack string) string {
	for _, of := range []struct{ stretch, function string }{
		{"", "oncebox/messaging.(*Loop).reportConnection("}, // every two seconds
		{Write, "main.write("},
		{Relay, "oncebox/projector."},
		{Relay, "pulsar.(*flight)"},
		{Receive, "oncebox/messaging.(*"},
		{Receive, "pulsar.(*receiver)"},
	} {
		if strings.Contains(stack, of.function) {
			return of.stretch
		}
	}
	return ""
}
