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
// A call of which the broker takes a part is over at once.
func (f *Failure) Note(rows []*outboxdb.Row, errs map[int]error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end(rows, errs)
	for i, err := range errs {
		c := schedule.Classify(err)
		if c != schedule.ClassTopic && c != schedule.ClassBroker {
			continue
		}
		f.reason, f.last = err.Error(), time.Now()
		topic := ""
		if c == schedule.ClassTopic {
			topic = rows[i].Topic
		}
		// A broker that takes nothing of any topic may name a topic as well. Any other topic is another failure.
		if goesOn := !f.began.IsZero() && (f.topic == "" || f.topic == topic); !goesOn {
			f.topic, f.began = topic, f.last
		}
		f.end(rows, errs)
		return
	}
}

// end ends the failure if one of the rows was taken.
func (f *Failure) end(rows []*outboxdb.Row, errs map[int]error) {
	for i, r := range rows {
		if errs[i] == nil && (f.topic == "" || f.topic == r.Topic) {
			f.began = time.Time{}
			return
		}
	}
}

// failing is a failure, and whether it goes on.
type failing struct {
	reason, topic string
	began, last   time.Time // began is zero if it is over
}

// now returns the last failure. The zero value: there was none.
func (f *Failure) now() failing {
	f.mu.Lock()
	defer f.mu.Unlock()
	return failing{f.reason, f.topic, f.began, f.last}
}

// lasts reports whether the failure goes on, and is at least that old. A younger failure may be one of several calls of which the others succeed: it is
// over a moment later.
func (f *failing) lasts(age time.Duration) bool {
	return !f.began.IsZero() && time.Since(f.began) >= age
}
