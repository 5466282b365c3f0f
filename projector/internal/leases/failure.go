package leases

import (
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// Failure is the last reason why the broker, or a topic, took nothing. The coordinator stores it for operators, see
// noteFailure.
type Failure struct {
	mu     sync.Mutex
	reason string
	topic  string    // the topic in trouble; "": the broker is
	began  time.Time // zero: it is over
	last   time.Time
}

// Note keeps the reason from the errors of a publication, the first that it finds: the errors of one call nearly
// always have one cause. Errors of single messages are left out, because each held
// row shows its own. A failure is over when a row is taken: of any topic if the broker was the reason, else of the topic.
func (f *Failure) Note(rows []*outboxdb.Row, errs map[int]error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, r := range rows {
		if errs[i] == nil && (f.topic == "" || f.topic == r.Topic) {
			f.began = time.Time{}
			break
		}
	}
	for i, err := range errs {
		c := schedule.Classify(err)
		if c != schedule.ClassTopic && c != schedule.ClassBroker {
			continue
		}
		f.reason, f.topic, f.last = err.Error(), "", time.Now()
		if c == schedule.ClassTopic {
			f.topic = rows[i].Topic
		}
		if f.began.IsZero() {
			f.began = f.last
		}
		return
	}
}

// failing is a failure, and whether it goes on.
type failing struct {
	reason      string
	began, last time.Time // began is zero if it is over
}

// now returns the last failure. The zero value: there was none.
func (f *Failure) now() failing {
	f.mu.Lock()
	defer f.mu.Unlock()
	return failing{f.reason, f.began, f.last}
}
