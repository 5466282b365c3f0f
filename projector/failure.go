package projector

import (
	"sync"
	"time"
)

// failure is why the broker, or a topic, last took nothing.
type failure struct {
	mu     sync.Mutex
	reason string
	at     time.Time
}

// note keeps the reason in what a publication returned. Errors of single messages are no failure of the relay: those messages show theirs.
func (f *failure) note(errs map[int]error) {
	for _, err := range errs {
		if c := classify(err); c == classTopic || c == classBroker {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.reason, f.at = err.Error(), time.Now()
			return
		}
	}
}

// since is what failed after a time.
func (f *failure) since(t time.Time) (reason string, at time.Time, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reason, f.at, f.at.After(t)
}
