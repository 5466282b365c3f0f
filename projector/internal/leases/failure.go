package leases

import (
	"sync"
	"time"

	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// Failure is the last reason why the broker, or a topic, took nothing. The coordinator stores it for operators, see
// noteFailure.
type Failure struct {
	mu     sync.Mutex
	reason string
	at     time.Time
}

// Note keeps the reason from the errors of a publication, the first that it finds: the errors of one call nearly
// always have one cause. Errors of single messages are left out, because each held
// row shows its own.
func (f *Failure) Note(errs map[int]error) {
	for _, err := range errs {
		if c := schedule.Classify(err); c == schedule.ClassTopic || c == schedule.ClassBroker {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.reason, f.at = err.Error(), time.Now()
			return
		}
	}
}

// since returns the last failure. ok is false if there was none after t.
func (f *Failure) since(t time.Time) (reason string, at time.Time, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reason, f.at, f.at.After(t)
}
